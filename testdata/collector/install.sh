#!/usr/bin/env bash
# Builds a real OpenTelemetry Collector for the tests, once, into a cache outside the checkout.
#
#   testdata/collector/install.sh            builds it; nothing to do where built
#   testdata/collector/install.sh --path     prints the program; fails if not built
#
# The cache is ${OMNITAP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/omnitap}. Needs Go and its module proxy. 3 minutes on
# two cores, 40 MB.
set -euo pipefail
builder=go.opentelemetry.io/collector/cmd/builder@v0.165.0
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${OMNITAP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/omnitap}
key=$({ echo "$builder"; cat "$here/builder.yaml"; go env GOARCH; } | sha256sum | cut -c1-12)
program=$cache/collector-$key/otelcol

if [ "${1:-}" = --path ]; then
  [ -x "$program" ] || { echo "install: not built; run testdata/collector/install.sh" >&2; exit 1; }
  echo "$program"
  exit 0
fi
mkdir -p "$cache"
exec 9>"$cache/collector.lock"
flock 9
if [ -x "$program" ]; then
  echo "collector: built already"
  exit 0
fi
t0=$SECONDS
work=$cache/collector-$key.new
rm -rf "$work"
mkdir "$work"
echo "collector: building (output in ${work##*/}/build.log in the cache)"
{ cat "$here/builder.yaml" && printf '%s\n' "replaces: []"; } >"$work/builder.yaml"
sed -i "s|^dist:|dist:\n  output_path: $work/dist|" "$work/builder.yaml"
if ! (cd "$work" && GOWORK=off go run "$builder" --config builder.yaml) >"$work/build.log" 2>&1 </dev/null; then
  tail -n 25 "$work/build.log" >&2
  echo "collector: FAILED after $((SECONDS - t0)) s"
  exit 1
fi
mkdir -p "${program%/*}"
mv "$work/dist/otelcol" "$program"
rm -rf "$work"
echo "collector: built in $((SECONDS - t0)) s"
