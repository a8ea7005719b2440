#!/usr/bin/env bash
# Builds the test control plane of one Kubernetes version into DIRECTORY/control-plane-VERSION, unless it is there.
#   build.sh VERSION DIRECTORY      for instance: build.sh v1.34.2 ~/.cache/autotuner
# The published modules of Kubernetes replace their staging parts by folders that are not published with them; here each
# is replaced by its own published version. All other versions are the ones that this version of Kubernetes names, and Go
# checks what it downloads. Prints the program's path. GO_BUILD_FLAGS: more flags, such as -p=1 on a busy machine.
set -euo pipefail

version=$1
cache=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program="$cache/control-plane-$version"
staging="v0${version#v1}"

if [ -x "$program" ]; then
    echo "$program"
    exit 0
fi
mkdir -p "$cache"
exec 9>"$program.lock"
flock 9
if [ -x "$program" ]; then
    echo "$program"
    exit 0
fi

export GOFLAGS="-mod=mod -buildvcs=false ${GO_BUILD_FLAGS:-}" CGO_ENABLED=0 GOTOOLCHAIN="${GOTOOLCHAIN:-auto}"
folder=$(mktemp -d "$cache/control-plane-build.XXXXXX")
trap 'rm -rf "$folder"' EXIT
cp "$here/main.go" "$folder/"
printf 'module control-plane\n\ngo 1.24\n' >"$folder/go.mod"
cd "$folder"

published=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^\t*"GoMod": "\(.*\)",*$/\1/p')
replacements=()
for part in $(sed -n 's/^[[:space:]]*\(k8s\.io\/[a-z-]*\) => \.\/staging.*/\1/p' "$published"); do
    replacements+=("-replace=$part=$part@$staging")
done
etcd=$(sed -n 's/^[[:space:]]*go\.etcd\.io\/etcd\/client\/v3 \(v[0-9.]*\).*/\1/p' "$published" | head -1)
go mod edit "-require=k8s.io/kubernetes@$version" "-require=go.etcd.io/etcd/server/v3@$etcd" "${replacements[@]}"
# No symbols and no debug information: a third of the size, and nobody debugs it.
go build -trimpath -ldflags="-s -w -X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$(echo "$version" | cut -d. -f2)" -o "$program.new" . >&2
mv "$program.new" "$program"
echo "$program"
