# Shared by the install scripts: one Python environment a name, built once into a cache outside the checkout.
#
# An environment lives in CACHE/NAME-KEY, where KEY is a hash of everything that went into it (its files, the recipe
# and the Python version), and counts as built when its stamp is there and its interpreter runs. A folder without a
# stamp is what an interrupted build left; it is removed and built again. Old keys are not cleaned up.

cache=${OMNITAP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/omnitap}

say() { echo "$*"; }

# find_python VERSION...: prints the command of the first interpreter that has one of these versions.
find_python() {
  local v p
  for v in "$@"; do
    for p in "python$v" python3 python; do
      if [ "$("$p" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$v" ]; then
        "$p" -c 'import sys; print(sys.executable)'
        return 0
      fi
    done
  done
  echo "install: no Python $* found by name" >&2
  return 1
}

# env_key PYTHON RECIPE FILE...: the hash that names the environment.
env_key() {
  local py=$1 recipe=$2
  shift 2
  { echo "$recipe"; cat "$@"; "$py" -c 'import platform; print(platform.python_version(), platform.machine())'; } |
    sha256sum | cut -c1-12
}

built() { [ -f "$1/.built" ] && "$1/bin/python" -c pass 2>/dev/null; }

# build NAME DIR PYTHON RECIPE: makes DIR with the function RECIPE (which gets DIR), unless it is there.
# Two builds at once wait for each other.
build() {
  local name=$1 dir=$2 py=$3 recipe=$4 t0=$SECONDS log
  mkdir -p "$cache"
  exec 9>"$cache/$name.lock"
  flock 9
  if built "$dir"; then
    say "$name: built already"
  else
    rm -rf "$dir"
    log=$dir.log
    say "$name: building (output in ${log##*/} in the cache)"
    if ! { "$py" -m venv "$dir" && "$recipe" "$dir"; } >"$log" 2>&1 </dev/null; then
      tail -n 25 "$log" >&2
      say "$name: FAILED after $((SECONDS - t0)) s"
      return 1
    fi
    date -u +%FT%TZ >"$dir/.built"
    rm -f "$log"
    say "$name: built in $((SECONDS - t0)) s"
  fi
  exec 9>&-
}

# pip_into DIR ARGS...: no cache (it would double the disk use), no questions.
pip_into() {
  local dir=$1
  shift
  "$dir/bin/python" -m pip install --no-cache-dir --disable-pip-version-check --no-input --progress-bar off "$@"
}
