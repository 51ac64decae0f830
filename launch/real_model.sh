#!/usr/bin/env bash
# A real model on human questions, on two cores: Qwen2.5-Coder-0.5B-Instruct.
#
#   launch/real_model.sh spider --model FILE.gguf --data SPIDER_TRAIN --databases DIR
#                        --eval SPIDER_DEV --eval-databases DIR [--workdir DIR] [options of train]
#   launch/real_model.sh tools  --model FILE.gguf --data QUESTIONS --databases DIR [...]
#
# spider: CISPO on Spider train, 25 steps of 16 questions × 8 rollouts, one SQL block an answer.
#   Before and after: greedy accuracy on 300 Spider-dev questions, and four samples of each of them
#   (300 × 5 answers, twice: about 40 minutes of a run of about four hours).
# tools: up to three SQL turns with numbered external knowledge, 5 steps of 4 questions × 4 rollouts;
#   give BIRD questions, such as those on superhero. No evaluation but 16 questions before and after.
#   Contract breaks, block compliance and turns are in the report, step by step.
#
# Kill it at any moment: the same command goes on. SAMPLES=0 leaves the sampled accuracy out;
# any other option goes to python -m jax_t2sql.train (--rl.steps 50).
set -euo pipefail
# shellcheck source=launch/_env.sh
source "$(dirname "${BASH_SOURCE[0]}")/_env.sh"

fail() { echo "error: $1; see $0 --help" >&2; exit 2; }

mode="${1:-}"
case "$mode" in
  spider | tools) shift ;;
  -h | --help) usage "$root/launch/real_model.sh"; exit 0 ;;
  *) fail "the first argument is '$mode'; it must be spider or tools" ;;
esac
model='' data='' databases='' eval='' eval_databases='' workdir="runs/real-$mode" rest=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage "$root/launch/real_model.sh"; exit 0 ;;
    --model | --data | --databases | --eval | --eval-databases | --workdir)
      [ $# -ge 2 ] || fail "$1 needs a value"
      name="${1#--}"
      printf -v "${name//-/_}" '%s' "$2"
      shift 2
      ;;
    *) rest+=("$1"); shift ;;
  esac
done
for name in model data databases; do
  [ -n "${!name}" ] || fail "--$name is missing"
  [ -e "${!name}" ] || fail "--$name ${!name} does not exist"
done
options=(--workdir "$workdir" --model "$model" --data "$data" --databases "$databases")
if [ "$mode" = spider ]; then
  [ -n "$eval" ] || fail "--eval, the questions of Spider dev, is missing"
  [ -e "$eval" ] || fail "--eval $eval does not exist"
  eval_databases="${eval_databases:-$databases}"
  options+=(--data.eval "$eval" --data.eval-databases "$eval_databases")
  config=configs/real_spider.py
else
  [ -z "$eval" ] || options+=(--data.eval "$eval")
  [ -z "$eval_databases" ] || options+=(--data.eval-databases "$eval_databases")
  config=configs/real_tools.py
fi
ensure_env run

python="$VENV/bin/python"
"$python" -m jax_t2sql.train --config "$config" "${options[@]}" "${rest[@]}"
if [ "$mode" = spider ]; then
  [ "${SAMPLES:-4}" -eq 0 ] || "$python" tests/bench/real_model.py sample "$workdir" --samples "${SAMPLES:-4}"
else
  "$python" tests/bench/real_model.py audit "$workdir"
  "$python" -m jax_t2sql.bus.audit "$workdir/bus"
fi
"$python" tests/bench/real_model.py table "$workdir"
