#!/usr/bin/env bash
# Trains on the nodes of a Slurm job, one process a node, and is queued again when it was cut short:
#
#   sbatch [--nodes N] [--gpus-per-node G] launch/slurm/learner.sh [--print] OPTIONS
#
# To be submitted from the repository's root. OPTIONS are those of `python -m jax_t2sql.train`;
# --workdir must lie on a file system that all nodes share; --bus may be s3://… or gs://… . Slurm's
# own options come before the script's name and win over the lines below.
#
# A minute before the time limit, and at preemption, the learner is told to end: it saves, and the
# job is queued again, as after a failure, at most RESTARTS times (default 20). Bad input (status 2),
# and another process that leads the run (3), end the job. --print, in a job or outside one, shows
# what each node would run, and runs nothing.
# EXTRAS: what to install, default cuda.
#SBATCH --job-name=jax_t2sql-learner
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@60
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -euo pipefail
# Slurm runs a copy of this file elsewhere, so its own place tells nothing.
if ! [ -f "${SLURM_SUBMIT_DIR:-.}/launch/_env.sh" ]; then
  echo "error: no launch/_env.sh in ${SLURM_SUBMIT_DIR:-$PWD}: submit from the repository's root" >&2
  exit 2
fi
cd "${SLURM_SUBMIT_DIR:-.}"
# shellcheck source=launch/_env.sh
source launch/_env.sh

print=
case "${1:-}" in
  -h | --help) usage "$root/launch/slurm/learner.sh"; exit 0 ;;
  --print) print=1; shift ;;
esac
[ $# -ge 1 ] || fail "nothing to train: give the options of python -m jax_t2sql.train, such as --config configs/NAME.py --workdir /shared/RUN"
job="${SLURM_JOB_ID:-0}"
nodes="${SLURM_JOB_NUM_NODES:-1}"
if [ "$nodes" -gt 1 ]; then
  command -v scontrol >/dev/null 2>&1 || fail "scontrol not found: several nodes need Slurm"
  mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
  [ ${#hosts[@]} -eq "$nodes" ] || fail "scontrol lists ${#hosts[@]} hosts for $SLURM_JOB_NODELIST, the job has $nodes"
  export JAX_COORDINATOR_ADDRESS="${hosts[0]}:$((20000 + job % 20000))" JAX_NUM_PROCESSES="$nodes"
fi
# The number of the node is known only there.
# shellcheck disable=SC2016
each=(bash -c '[ -z "${JAX_NUM_PROCESSES:-}" ] || export JAX_PROCESS_ID="$SLURM_PROCID"; exec "$@"' node
  "$VENV/bin/python" -m jax_t2sql.train "$@")
step=(srun "--nodes=$nodes" --ntasks-per-node=1 --kill-on-bad-exit=1 "${each[@]}")
if [ -n "$print" ]; then
  if [ "$nodes" -gt 1 ]; then
    show export "JAX_COORDINATOR_ADDRESS=$JAX_COORDINATOR_ADDRESS" "JAX_NUM_PROCESSES=$JAX_NUM_PROCESSES"
  fi
  show "${step[@]}"
  exit 0
fi
[ "$job" != 0 ] || fail "not in a Slurm job: sbatch launch/slurm/learner.sh …, or --print"
ensure_env "${EXTRAS:-cuda}"

stopped="" child=""
trap 'stopped=1; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM INT
"${step[@]}" &
child=$!
status=0
wait "$child" || status=$?
while kill -0 "$child" 2>/dev/null; do
  status=0
  wait "$child" || status=$?
done
case "$status" in 0 | 2 | 3) exit "$status" ;; esac
restarts="${SLURM_RESTART_COUNT:-0}"
if [ "$restarts" -ge "${RESTARTS:-20}" ]; then
  echo "error: the training ended with status $status and was queued again $restarts times already; given up. Submit the same command to go on" >&2
  exit "$status"
fi
echo "the training $([ -n "$stopped" ] && echo "was told to end" || echo "failed") (status $status); job $job is queued again" >&2
exec scontrol requeue "$job"
