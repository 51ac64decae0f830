#!/usr/bin/env bash
# Starts samplers for a run on this machine, one a server, and starts each again if it fails:
#
#   launch/samplers.sh BUS http://HOST:PORT [http://HOST:PORT ...] [-- OPTIONS]
#   GPUS="0 1 2 3" launch/samplers.sh BUS [-- OPTIONS]    # a vLLM server of its own on each GPU
#
# OPTIONS go to every `python -m jax_t2sql.sample`, such as --databases or --groups. --print before
# BUS shows the commands instead. Ends when the run has ended, or with Ctrl-C.
# VLLM_PYTHON names the interpreter that has vLLM; the first server on a GPU gets port 8100.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/_env.sh"

usage() { sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }

print=
if [ "${1:-}" = --print ]; then print=1; shift; fi
[ $# -ge 1 ] || usage
bus="$1"; shift
servers=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do servers+=("$1"); shift; done
if [ $# -gt 0 ]; then shift; fi
options=("$@")
read -ra gpus <<<"${GPUS:-}"
[ $(( ${#servers[@]} + ${#gpus[@]} )) -gt 0 ] || usage

host="$(hostname -s | tr -c 'A-Za-z0-9\n' '-')"
host="${host#-}"

# keep NAME URL OPTION...: one sampler, again and again until the run has ended (status 0) or its
# input is refused (2) or it was told to stop (130, 143).
keep() {
  local name="$1" url="$2" status pause=1; shift 2
  local command=("$VENV/bin/python" -m jax_t2sql.sample --bus "$bus" --policy "vllm:$url" --name "$name" "$@")
  if [ -n "$print" ]; then
    printf '%q ' "${command[@]}"; echo
    return
  fi
  while true; do
    status=0
    "${command[@]}" || status=$?
    case "$status" in 0|2|130|143) return "$status" ;; esac
    echo "sampler $name ended with status $status; again in $pause s" >&2
    sleep "$pause"
    pause=$(( pause < 60 ? 2 * pause : 60 ))
  done
}

# Lines of several jobs at once would run into each other.
begin() { if [ -n "$print" ]; then keep "$@"; else keep "$@" & fi; }

[ -n "$print" ] || ensure_env run
number=0
for url in "${servers[@]}"; do
  begin "$host-$number" "$url" "${options[@]}"
  number=$(( number + 1 ))
done
for gpu in "${gpus[@]}"; do
  CUDA_VISIBLE_DEVICES="$gpu" begin "$host-gpu$gpu" "http://127.0.0.1:$(( 8100 + gpu ))" --spawn-vllm \
    --vllm-python "${VLLM_PYTHON:-python3}" "${options[@]}"
done
worst=0
for job in $(jobs -p); do
  wait "$job" || worst=$?
done
exit "$worst"
