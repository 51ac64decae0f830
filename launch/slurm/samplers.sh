#!/usr/bin/env bash
# Samplers for a run as a Slurm array, a vLLM server and a sampler for each GPU of each element:
#
#   sbatch --array=0-7 [--gpus G] launch/slurm/samplers.sh [--print] BUS [OPTIONS]
#
# To be submitted from the repository's root. OPTIONS go to every `python -m jax_t2sql.sample`.
# Elements may start, end and be preempted at any time: what they leave is sampled by others, and
# the learner does not wait. They end with the run. VLLM_PYTHON names the interpreter that has vLLM.
# --print, in a job or outside one, shows the commands, and runs nothing.
#SBATCH --job-name=jax_t2sql-samplers
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus=1
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@30
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%A-%a.log
set -euo pipefail
# Slurm runs a copy of this file elsewhere, so its own place tells nothing.
if ! [ -f "${SLURM_SUBMIT_DIR:-.}/launch/_env.sh" ]; then
  echo "error: no launch/_env.sh in ${SLURM_SUBMIT_DIR:-$PWD}: submit from the repository's root" >&2
  exit 2
fi
cd "${SLURM_SUBMIT_DIR:-.}"
# shellcheck source=launch/_env.sh
source launch/_env.sh

print=()
case "${1:-}" in
  -h | --help) usage "$root/launch/slurm/samplers.sh"; exit 0 ;;
  --print) print=(--print); shift ;;
esac
[ $# -ge 1 ] || fail "which bus? sbatch --array=0-7 launch/slurm/samplers.sh BUS [OPTIONS]"
bus="$1"
shift
element="${SLURM_ARRAY_TASK_ID:-0}"
IFS=, read -ra gpus <<<"${CUDA_VISIBLE_DEVICES:-}"
[ ${#gpus[@]} -gt 0 ] || fail "CUDA_VISIBLE_DEVICES is empty: the job has no GPU; add --gpus=1"
export GPUS="${gpus[*]}" SAMPLER="slurm-${SLURM_ARRAY_JOB_ID:-0}-$element"
# Elements that share a node see their GPUs under the same numbers.
export PORT="$((10000 + (${SLURM_ARRAY_JOB_ID:-0} + element * 16) % 20000))"
exec launch/samplers.sh "${print[@]}" "$bus" -- "$@"
