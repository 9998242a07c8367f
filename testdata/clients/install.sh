#!/usr/bin/env bash
# Builds the environment of the light clients, once, into a cache outside the checkout.
#
#   testdata/clients/install.sh            builds it; nothing to do where built
#   testdata/clients/install.sh --path     prints the environment's folder; fails if not built
#
# The cache is ${OMNITAP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/omnitap}. Needs Python 3.11 or 3.12, npm, and package
# indexes that pip and npm can reach as they are set up. What npm installs lies in node_modules beside Python's folders.
# Disk: about 90 MB.
set -euo pipefail
recipe=2 # part of the key: raise it when a build step below changes
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../real/envlib.sh"

make_clients() {
  pip_into "$1" --no-deps -r "$here/requirements.txt" && "$1/bin/python" -m pip check &&
    cp "$here/package.json" "$here/package-lock.json" "$1" &&
    npm ci --prefix "$1" --cache "$1/npm" --ignore-scripts --no-audit --no-fund --no-update-notifier --omit=optional &&
    rm -r "$1/npm"
}

py=$(find_python 3.11 3.12)
dir=$cache/clients-$(env_key "$py" "$recipe" "$here/requirements.txt" "$here/package-lock.json")
if [ "${1:-}" = --path ]; then
  built "$dir" || { echo "install: not built; run testdata/clients/install.sh" >&2; exit 1; }
  echo "$dir"
  exit 0
fi
build clients "$dir" "$py" make_clients
