# Sourced by the launch scripts: finds Python, makes the virtual environment, installs extras.
# Variables: PYTHON (interpreter to use), VENV (folder of the environment, default .venv).

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
VENV="${VENV:-$root/.venv}"

find_python() {
  for candidate in "${PYTHON:-}" python3.11 python3.12 python3.13 python3; do
    [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  echo "error: no Python 3.11 or newer found; install one, or name it: PYTHON=/path/to/python3.11 $0" >&2
  return 2
}

# ensure_env EXTRA...: the environment exists and holds this checkout with the extras. A stamp of
# pyproject.toml and the extras makes the second call free.
ensure_env() {
  local extras stamp python
  extras="$(IFS=,; echo "$*")"
  if [ ! -x "$VENV/bin/python" ]; then
    python="$(find_python)" || exit 2
    echo "making the virtual environment $VENV with $("$python" --version)"
    "$python" -m venv "$VENV" || { echo "error: could not make $VENV; on Debian, install python3-venv" >&2; exit 2; }
  fi
  stamp="$("$VENV/bin/python" -c 'import hashlib,sys; print(hashlib.sha256(open("pyproject.toml","rb").read()+sys.argv[1].encode()).hexdigest())' "$root:$extras")"
  if ! grep -qsx "$stamp" "$VENV/.jax_t2sql-installed"; then
    echo "installing jax_t2sql[$extras] (about two minutes the first time)"
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -e ".[$extras]" || {
      echo "error: the installation failed; the lines above say why. Is the package index reachable?" >&2
      exit 2
    }
    echo "$stamp" >>"$VENV/.jax_t2sql-installed"
  fi
}
