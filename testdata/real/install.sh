#!/usr/bin/env bash
# Builds the environments of the real servers, once, into a cache outside the checkout.
#
#   testdata/real/install.sh [NAME…]          all where none is named; nothing to do where built
#   testdata/real/install.sh --path NAME      prints the environment's folder; fails if not built
#
#   vllm-omni        2.8 GB   the serving layer
#   sglang-omni      4.9 GB   the server over toy stages, and SGLang-Omni's connectors
#   connectors       170 MB   vLLM-Omni's connectors between real processes; lies over vllm-omni
#   vllm-omni-cpu    250 MB   the whole vLLM-Omni server and two tiny models; lies over vllm-omni
#
# The cache is ${OMNITAP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/omnitap}. Needs Linux x86-64, Python 3.11 or 3.12
# (all but sglang-omni: 3.11), gcc and binutils, and a package index that pip can reach as it is set up.
# Needs no GPU; it downloads no weights and starts no server.
set -euo pipefail
steps=1 # part of the key: raise it when a build step below changes
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

make_connectors() { layer_over "$1" vllm-omni "$here/connectors/requirements.txt"; }

make_vllm-omni-cpu() {
  local kind from=$here/vllm-omni-cpu
  layer_over "$1" vllm-omni "$from/requirements.txt" &&
    cp -r "$from/platform" "$1/platform" && # pip builds in the folder that it is given
    pip_into "$1" --no-deps "$1/platform" &&
    own_command "$1" vllm-omni vllm-omni || return
  for kind in omni tts; do
    PYTHONDONTWRITEBYTECODE=1 "$1/bin/python" "$from/make_$kind.py" "$1/models/$kind" || return
  done
}

# layer_over DIR BASE REQUIREMENTS: DIR's own packages before those of the environment BASE.
layer_over() {
  local base
  base=$(dir_of "$2") && pip_into "$1" --no-deps -r "$3" &&
    site_of "$base" >"$(site_of "$1")/base.pth"
}

# own_command DIR BASE COMMAND: BASE's COMMAND, run by DIR's Python.
own_command() {
  local base
  base=$(dir_of "$2") && sed "1s|^#!.*|#!$1/bin/python|" "$base/bin/$3" >"$1/bin/$3" && chmod +x "$1/bin/$3"
}

site_of() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

python_for() {
  case $1 in
    vllm-omni | connectors | vllm-omni-cpu) find_python 3.11 ;;
    sglang-omni) find_python 3.11 3.12 ;;
    *) echo "install: unknown environment '$1'" >&2; return 2 ;;
  esac
}

base_for() { # NAME: the environment that NAME lies over, if any
  case $1 in connectors | vllm-omni-cpu) echo vllm-omni ;; esac
}

dir_of() { # NAME
  local py
  py=$(python_for "$1") && dir_for "$1" "$py"
}

dir_for() { # NAME PYTHON
  local files=("$here/$1/requirements.txt") base made_by=$steps
  case $1 in
    vllm-omni) files+=("$here/$1/torch_without_cuda.py") ;;
    vllm-omni-cpu) files+=("$here/$1"/make_*.py "$here/$1/platform/pyproject.toml" "$here/$1"/platform/*/*.py) ;;
  esac
  base=$(base_for "$1")
  [ -z "$base" ] || made_by+=" over $(dir_of "$base")"
  echo "$cache/$1-$(env_key "$2" "$made_by" "${files[@]}")"
}

make_one() { # NAME
  local base py
  base=$(base_for "$1")
  [ -z "$base" ] || make_one "$base"
  py=$(python_for "$1")
  build "$1" "$(dir_for "$1" "$py")" "$py" "make_$1"
}

if [ "${1:-}" = --path ]; then
  dir=$(dir_of "${2:?a name}")
  built "$dir" || { echo "install: $2 is not built; run testdata/real/install.sh $2" >&2; exit 1; }
  echo "$dir"
  exit 0
fi
[ $# -gt 0 ] || set -- vllm-omni sglang-omni connectors vllm-omni-cpu
for name in "$@"; do
  make_one "$name"
done
