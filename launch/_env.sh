# shellcheck shell=bash
# Sourced by the launch scripts: finds Python, makes the virtual environment, installs extras, keeps
# a program running.
# Variables: PYTHON (interpreter to use), VENV (folder of the environment, default .venv).

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root" || exit 2
VENV="${VENV:-$root/.venv}"

find_python() {
  for candidate in "${PYTHON:-}" python3.11 python3.12 python3.13 python3; do
    command -v "${candidate:-none}" >/dev/null 2>&1 || continue
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

# usage FILE: the script's own head comment, as help.
usage() { awk 'NR > 1 { if (!/^#( |$)/) exit; sub(/^# ?/, ""); print }' "$1"; }

# fail MESSAGE: bad input, status 2.
fail() {
  echo "error: $1" >&2
  exit 2
}

# keep_running NAME RETRIES COMMAND...: the command, again and again until it ends with 0, its input
# is refused (2), another process leads the run (3), or this script is told to stop (TERM, INT, HUP:
# passed on, and then waited for).
# RETRIES: how many failures in a row are too many (-1: none are); one after ten minutes of work
# starts the count anew. RESTART_SECONDS: the first pause, which doubles up to a minute.
keep_running() {
  local name="$1" retries="$2" status failures=0 pause="${RESTART_SECONDS:-1}" child="" stopped="" began
  shift 2
  trap 'stopped=1; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM INT HUP
  while true; do
    began=$SECONDS
    # In the background, since a shell acts on signals only while it waits so.
    "$@" &
    child=$!
    status=0
    wait "$child" || status=$?
    while kill -0 "$child" 2>/dev/null; do # a signal has ended the wait, not the command
      status=0
      wait "$child" || status=$?
    done
    child=""
    if [ -n "$stopped" ]; then return "$status"; fi
    case "$status" in 0 | 2 | 3) return "$status" ;; esac
    if [ $((SECONDS - began)) -ge 600 ]; then
      failures=0
      pause="${RESTART_SECONDS:-1}"
    fi
    failures=$((failures + 1))
    if [ "$retries" -ge 0 ] && [ "$failures" -gt "$retries" ]; then
      echo "error: $name ended with status $status, $failures times in a row; given up. The lines above say why; run the same command to go on" >&2
      return "$status"
    fi
    echo "$name ended with status $status; again in $pause s (failure $failures$([ "$retries" -lt 0 ] || echo " of at most $retries"))" >&2
    sleep "$pause" &
    child=$!
    wait "$child" || true
    child=""
    if [ -n "$stopped" ]; then return "$status"; fi
    pause=$((pause < 30 ? 2 * pause : 60))
  done
}

# show COMMAND...: one line that a shell would read back as the same command.
show() {
  printf '%q ' "$@" | sed 's/ $//'
  echo
}
