#!/usr/bin/env bash
# Builds VictoriaMetrics of one process into DIRECTORY/victoria-metrics-VERSION, unless it is there: a minute of a processor.
#   build.sh VERSION DIRECTORY      for instance: build.sh v1.151.0 ~/.cache/autotuner
# Prints the program's path. The tests that ask it are skipped where it is not built.
set -euo pipefail

version=$1
cache=$2
program="$cache/victoria-metrics-$version"
main=github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics
if [ ! -x "$program" ]; then
    folder=$(mktemp -d "$cache/victoria-metrics-build.XXXXXX")
    trap 'rm -rf "$folder"' EXIT
    export GOFLAGS="-mod=mod -buildvcs=false ${GO_BUILD_FLAGS:-}" CGO_ENABLED=0
    printf 'module victoria-metrics\n\ngo 1.26\n' >"$folder/go.mod"
    cd "$folder"
    go get -tool "$main@$version" >&2
    go build -trimpath -ldflags="-s -w" -o "$program.new" "$main" >&2
    mv "$program.new" "$program"
fi
echo "$program"
