#!/usr/bin/env bash
# Starts samplers for a run on this machine, one a server, and starts each again if it fails:
#
#   launch/samplers.sh [--print] BUS http://HOST:PORT [http://HOST:PORT ...] [-- OPTIONS]
#   GPUS="0 1 2 3" launch/samplers.sh [--print] BUS [-- OPTIONS]   # a vLLM server of its own on each
#
# OPTIONS go to every `python -m jax_t2sql.sample`, such as --databases or --groups. --print shows
# the commands and runs nothing. Ends when the run has ended, or with Ctrl-C or SIGTERM, which give
# unfinished work back at once. VLLM_PYTHON names the interpreter that has vLLM; GPU n's server gets
# port PORT + n (default 8100 + n); SAMPLER names the samplers of this machine (default: the host's
# name). Relative paths start at the repository's root.
set -euo pipefail
here="$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=launch/_env.sh
source "$here/_env.sh"
script="$root/launch/samplers.sh"

print=
while [ $# -gt 0 ]; do
  case "$1" in
    --print) print=1 ;;
    -h | --help) usage "$script"; exit 0 ;;
    -*) fail "unknown option $1; see $0 --help" ;;
    *) break ;;
  esac
  shift
done
[ $# -ge 1 ] || fail "which bus? See $0 --help: launch/samplers.sh BUS http://HOST:PORT"
bus="$1"
shift
servers=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case "$1" in
    http://?* | https://?*) servers+=("$1") ;;
    *) fail "$1 is no server; give http://HOST:PORT, and options of samplers after --" ;;
  esac
  shift
done
if [ $# -gt 0 ]; then shift; fi
options=("$@")
read -ra gpus <<<"${GPUS:-}"
for gpu in "${gpus[@]}"; do
  [[ "$gpu" =~ ^[0-9]{1,3}$ ]] || fail "GPUS holds $gpu; give numbers, such as GPUS=\"0 1\""
done
[[ "${PORT:-8100}" =~ ^[0-9]{1,5}$ ]] || fail "PORT is $PORT; give a number"
[ $((${#servers[@]} + ${#gpus[@]})) -gt 0 ] ||
  fail "no server: launch/samplers.sh BUS http://HOST:PORT, or GPUS=\"0 1\" for servers of its own"

name="${SAMPLER:-$(hostname -s | tr -c 'A-Za-z0-9\n' '-')}"
name="${name#-}"

# begin NAME URL OPTION...: shows one sampler's command, or keeps it running in the background.
begin() {
  local own="$1" url="$2" command
  shift 2
  command=("$VENV/bin/python" -m jax_t2sql.sample --bus "$bus" --policy "vllm:$url" --name "$own" "$@")
  if [ -n "$device" ]; then command=(env "CUDA_VISIBLE_DEVICES=$device" "${command[@]}"); fi
  if [ -n "$print" ]; then show "${command[@]}"; else keep_running "sampler $own" -1 "${command[@]}" & fi
}

[ -n "$print" ] || ensure_env run
number=0
device=
for url in "${servers[@]}"; do
  begin "$name-$number" "$url" "${options[@]}"
  number=$((number + 1))
done
for device in "${gpus[@]}"; do
  begin "$name-gpu$device" "http://127.0.0.1:$((${PORT:-8100} + device))" --spawn-vllm \
    --vllm-python "${VLLM_PYTHON:-python3}" "${options[@]}"
done

mapfile -t jobs < <(jobs -p)
trap '[ ${#jobs[@]} -eq 0 ] || kill -TERM "${jobs[@]}" 2>/dev/null || true' TERM INT HUP
worst=0
for job in "${jobs[@]}"; do
  status=0
  wait "$job" || status=$?
  while kill -0 "$job" 2>/dev/null; do # a signal has ended the wait, not the job
    status=0
    wait "$job" || status=$?
  done
  [ "$status" -eq 0 ] || worst="$status"
done
exit "$worst"
