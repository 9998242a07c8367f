#!/usr/bin/env bash
# Builds a real Jaeger for `make test-store`, once, into a cache outside the checkout. Its module replaces others, so
# that it builds as a main module alone: from a copy.
#
#   testdata/jaeger/install.sh            builds it; nothing to do where built
#   testdata/jaeger/install.sh --path     prints the program; fails if not built
#
# The cache is ${OMNITAP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/omnitap}. Needs Go, its module proxy and python3. 2
# minutes on two cores, 75 MB.
set -euo pipefail
module=github.com/jaegertracing/jaeger@v1.76.0
cache=${OMNITAP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/omnitap}
key=$({ echo "$module"; go env GOARCH; } | sha256sum | cut -c1-12)
program=$cache/jaeger-$key/jaeger

if [ "${1:-}" = --path ]; then
  [ -x "$program" ] || { echo "install: not built; run testdata/jaeger/install.sh" >&2; exit 1; }
  echo "$program"
  exit 0
fi
mkdir -p "$cache"
exec 9>"$cache/jaeger.lock"
flock 9
if [ -x "$program" ]; then
  echo "jaeger: built already"
  exit 0
fi
t0=$SECONDS
work=$cache/jaeger-$key.new
rm -rf "$work"
mkdir "$work"
echo "jaeger: building (output in ${work##*/}/build.log in the cache)"
build() {
  local dir
  dir=$(cd "$work" && GOWORK=off go mod download -json "$module" | python3 -c 'import json, sys; print(json.load(sys.stdin)["Dir"])') &&
    cp -r "$dir" "$work/src" &&
    chmod -R u+w "$work/src" &&
    cd "$work/src" &&
    GOWORK=off go build -trimpath -o "$work/jaeger" ./cmd/all-in-one
}
if ! (build) >"$work/build.log" 2>&1 </dev/null; then
  tail -n 25 "$work/build.log" >&2
  echo "jaeger: FAILED after $((SECONDS - t0)) s"
  exit 1
fi
mkdir -p "${program%/*}"
mv "$work/jaeger" "$program"
rm -rf "$work"
echo "jaeger: built in $((SECONDS - t0)) s"
