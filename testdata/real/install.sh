#!/usr/bin/env bash
# Builds the environments of the real servers, once, into a cache outside the checkout.
#
#   testdata/real/install.sh [vllm-omni] [sglang-omni]     both where none is named; nothing to do where built
#   testdata/real/install.sh --path NAME                   prints the environment's folder; fails if not built
#
# The cache is ${OMNITAP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/omnitap}. Needs Linux x86-64, Python 3.11 or 3.12
# (vllm-omni: 3.11), gcc and binutils, and a package index that pip can reach as it is set up.
# Disk: vllm-omni 2.8 GB, sglang-omni 4.9 GB. Needs no GPU; it downloads no weights and starts no server.
set -euo pipefail
recipe=1 # part of the key: raise it when a build step below changes
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/envlib.sh"

make_vllm-omni() { # --no-deps: the packages' own requirements ask for the CUDA stack
  pip_into "$1" --no-deps -r "$here/vllm-omni/requirements.txt" &&
    "$1/bin/python" "$here/vllm-omni/torch_without_cuda.py"
}

make_sglang-omni() { # --no-deps on the package alone: its own requirements ask for a GPU stack
  pip_into "$1" -r "$here/sglang-omni/requirements.txt" &&
    pip_into "$1" --no-deps sglang-omni==0.1.9
}

python_for() {
  case $1 in
    vllm-omni) find_python 3.11 ;;
    sglang-omni) find_python 3.11 3.12 ;;
    *) echo "install: unknown server '$1'" >&2; return 2 ;;
  esac
}

dir_for() { # NAME PYTHON
  local files=("$here/$1/requirements.txt")
  [ "$1" != vllm-omni ] || files+=("$here/$1/torch_without_cuda.py")
  echo "$cache/$1-$(env_key "$2" "$recipe" "${files[@]}")"
}

if [ "${1:-}" = --path ]; then
  py=$(python_for "${2:?a name}")
  dir=$(dir_for "$2" "$py")
  built "$dir" || { echo "install: $2 is not built; run testdata/real/install.sh $2" >&2; exit 1; }
  echo "$dir"
  exit 0
fi
[ $# -gt 0 ] || set -- vllm-omni sglang-omni
for name in "$@"; do
  py=$(python_for "$name")
  build "$name" "$(dir_for "$name" "$py")" "$py" "make_$name"
done
