#!/usr/bin/env bash
# The tests on a Kubernetes control plane, on the oldest and then on the newest supported version. Arguments go to pytest.
# Each control plane is built first, with Go from the package index where there is none: nothing is skipped for want of
# one. Both versions are run whatever the first comes to; ends with the first code that is not 0.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

trap 'exit 130' INT

go=$(bash scripts/go.sh)
export PATH="$(dirname "$go"):$PATH"
versions=$(.venv/bin/python -c 'from tests.kubernetes.plane import NEWEST, OLDEST; print(OLDEST, NEWEST)')

on_version() {
    echo "=== Kubernetes $1"
    AUTOTUNER_TEST_KUBERNETES=$1 .venv/bin/python -m tests.kubernetes || return
    AUTOTUNER_TEST_KUBERNETES=$1 .venv/bin/pytest -m kubernetes "${@:2}"
}

ended=0
summary=()
for version in $versions; do
    begun=$SECONDS code=0
    on_version "$version" "$@" || code=$?
    [ "$ended" -ne 0 ] || ended=$code
    summary+=("=== Kubernetes $version: exit code $code after $((SECONDS - begun)) s")
done
printf '%s\n' "${summary[@]}"
exit "$ended"
