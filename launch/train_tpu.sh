#!/usr/bin/env bash
# Trains on all hosts of a TPU slice, and goes on after every preemption:
#
#   launch/train_tpu.sh --tpu NAME --zone ZONE [--project P] [--directory DIR] -- OPTIONS
#   launch/train_tpu.sh -- OPTIONS        # inside a TPU VM: this host's part, on every host of the slice
#
# OPTIONS are those of `python -m jax_t2sql.train`; --workdir must be a folder that all hosts share
# (a mounted bucket or file system), for that is what a restarted run goes on from. --bus may be
# gs://… .
#
# With --tpu the command runs on every host by `gcloud compute tpus tpu-vm ssh … --worker=all`, in
# DIR (default: jax_t2sql in the home folder there), which must hold this repository. If it fails,
# the script waits until the slice is READY and runs the same command again, until it ends with
# success. It never creates or deletes a slice: a preempted spot slice must be made anew, by its
# queued resource say.
#
# Inside a VM, host number, number of hosts and the coordinator's address come from the options
# below, else from TPU_WORKER_ID and TPU_WORKER_HOSTNAMES (set on Kubernetes), else from the VM's
# metadata; a machine that has none of these trains alone.
#
#   --processes N --process I --coordinator HOST:PORT     all three
#   --retries N     failures in a row before it gives up (default 20 with --tpu, else 0); one
#                   after ten minutes of work starts the count anew
#   --print         show what would run, and run nothing
set -euo pipefail
here="$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=launch/_env.sh
source "$here/_env.sh"
script="$root/launch/train_tpu.sh"
PORT=8476
METADATA="${METADATA_URL:-http://metadata.google.internal/computeMetadata/v1/instance/attributes}"

tpu="" zone="" project="" directory="jax_t2sql" retries="" print="" processes="" process="" coordinator=""
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case "$1" in
    --print) print=1 ;;
    -h | --help) usage "$script"; exit 0 ;;
    --tpu | --zone | --project | --directory | --retries | --processes | --process | --coordinator)
      [ $# -ge 2 ] && [[ "$2" != --* ]] || fail "$1 needs a value; see $0 --help"
      printf -v "${1#--}" '%s' "$2"
      shift
      ;;
    *) fail "unknown option $1; options of the training go after --, see $0 --help" ;;
  esac
  shift
done
[ $# -gt 1 ] || fail "nothing to train: give the options of python -m jax_t2sql.train after --, such as -- --config configs/NAME.py --workdir /mnt/SHARED/RUN"
shift
options=("$@")
[ -n "$retries" ] || retries="$([ -n "$tpu" ] && echo 20 || echo 0)"
[[ "$retries" =~ ^[0-9]+$ ]] || fail "--retries is $retries; give a number"

# slice_state: READY, PREEMPTED, … or MISSING.
slice_state() {
  gcloud compute tpus tpu-vm describe "$tpu" "${place[@]}" '--format=value(state)' 2>/dev/null || echo MISSING
}

# on_all_hosts: one attempt; waits for the slice first.
on_all_hosts() {
  local state said=""
  while state="$(slice_state)" && [ "$state" != READY ]; do
    if [ "$state" != "$said" ]; then
      echo "the slice $tpu is $state; waiting until it is READY (see gcloud compute tpus queued-resources list ${place[*]})" >&2
      said="$state"
    fi
    sleep "${POLL_SECONDS:-30}"
  done
  exec "${remote[@]}"
}

if [ -n "$tpu" ]; then
  [ -n "$zone" ] || fail "--tpu $tpu needs --zone, such as --zone us-east5-b"
  [ -z "$processes$process$coordinator" ] || fail "--processes, --process and --coordinator are found out on each host; leave them out with --tpu"
  [ -n "$print" ] || command -v gcloud >/dev/null 2>&1 ||
    fail "gcloud not found; install the Google Cloud CLI, or run this script without --tpu on every host"
  place=("--zone=$zone")
  if [ -n "$project" ]; then place+=("--project=$project"); fi
  # What the shell of each host gets. A tilde would not be expanded within quotes.
  there="cd $(show "$directory") && exec $(show launch/train_tpu.sh -- "${options[@]}")"
  remote=(gcloud compute tpus tpu-vm ssh "$tpu" "${place[@]}" --worker=all "--command=$there")
  if [ -n "$print" ]; then
    echo "# on this machine, again after each failure, at most $retries in a row:"
    show "${remote[@]}"
    exit 0
  fi
  keep_running "the training on $tpu" "$retries" on_all_hosts
  exit
fi
[ -z "$zone$project" ] || fail "--zone and --project belong to --tpu NAME"

# attribute NAME: of this VM's metadata; status 1 where there is none.
attribute() { curl -fs --max-time 3 -H 'Metadata-Flavor: Google' "$METADATA/$1"; }

if [ -n "$processes$process$coordinator" ]; then
  [ -n "$processes" ] && [ -n "$process" ] && [ -n "$coordinator" ] ||
    fail "--processes, --process and --coordinator go together"
elif [ -n "${TPU_WORKER_ID:-}" ] && [ -n "${TPU_WORKER_HOSTNAMES:-}" ]; then
  process="$TPU_WORKER_ID"
  IFS=, read -ra hosts <<<"$TPU_WORKER_HOSTNAMES"
  processes="${#hosts[@]}" coordinator="${hosts[0]}:$PORT"
elif endpoints="$(attribute worker-network-endpoints)" && process="$(attribute agent-worker-number)"; then
  IFS=, read -ra hosts <<<"$endpoints" # each unused:unused:address
  processes="${#hosts[@]}" coordinator="${hosts[0]##*:}:$PORT"
fi
environment=()
if [ -n "$processes" ]; then
  [[ "$processes" =~ ^[1-9][0-9]*$ ]] || fail "the number of hosts is $processes; it must be at least 1"
  [[ "$process" =~ ^[0-9]+$ ]] && [ "$process" -lt "$processes" ] ||
    fail "this is host $process of $processes; hosts count from 0 to $((processes - 1))"
  [[ "$coordinator" =~ ^[^:]+:[0-9]+$ ]] || fail "the coordinator's address is $coordinator; give HOST:PORT"
  if [ "$processes" -gt 1 ]; then
    environment=("JAX_COORDINATOR_ADDRESS=$coordinator" "JAX_NUM_PROCESSES=$processes" "JAX_PROCESS_ID=$process")
  fi
fi
command=("$VENV/bin/python" -m jax_t2sql.train "${options[@]}")
if [ ${#environment[@]} -gt 0 ]; then command=(env "${environment[@]}" "${command[@]}"); fi
if [ -n "$print" ]; then
  show "${command[@]}"
  exit 0
fi
ensure_env "${EXTRAS:-tpu}"
keep_running "the training" "$retries" "${command[@]}"
