"""Score a policy on questions: accuracy under several graders, with intervals, cost and a report.

    python -m jax_t2sql.eval --suite spider-dev --policy local:MODEL[+ADAPTER] --out DIR
    python -m jax_t2sql.eval --data Q.jsonl --databases DIR --policy vllm:URL --candidates 8
    python -m jax_t2sql.eval --suite bird-dev --policy file:predictions.json --grader bird,set
    python -m jax_t2sql.eval --list

    python -m jax_t2sql.eval compare A B      which of two evaluations is better, and where
    python -m jax_t2sql.eval explain DIR      what is wrong with the wrong answers
    python -m jax_t2sql.eval report DIR       report.html anew, with what explain found
    python -m jax_t2sql.eval sweep WORKDIR    every adapter that a training run kept
    python -m jax_t2sql.eval ceiling A B C    what several evaluations solve together

Prints accuracy in all, by difficulty and by database, with 95 % Wilson intervals, and writes

    OUT/results.json      n, grader, accuracy, wilson_low, wilson_high, by, cost, manifest, …
    OUT/report.html       the same to look at, with every question
    OUT/answers.jsonl     one line an answer: query, tokens, episode
    OUT/verdicts.jsonl    one line an answer, grader and answer key
    OUT/manifest.json     model, adapter, prompt, data and database hashes, decoding, versions, seed

The same command goes on with an evaluation that was interrupted.
"""

import importlib
import sys

import tyro

from jax_t2sql.eval.options import EvalArgs
from jax_t2sql.programs import raise_disk_fault, run_program

_COMMANDS = {"compare": "compare", "explain": "explain", "report": "page", "ceiling": "ceiling"}


def main(argv: list[str] | None = None) -> int:
    """The program. Returns the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    command = argv[0] if argv else ""
    if command in _COMMANDS:
        return importlib.import_module(f"jax_t2sql.scores.{_COMMANDS[command]}").main(argv[1:])
    if command == "sweep":
        from jax_t2sql.scores import sweep

        return sweep.main(argv[1:], main)
    args = tyro.cli(
        EvalArgs,
        args=argv,
        prog="python -m jax_t2sql.eval",
        description=__doc__,
    )
    if args.list_suites:
        from jax_t2sql.eval.suites import benchmarks_folder, print_suites

        print_suites(benchmarks_folder(args.benchmarks))
        return 0
    from jax_t2sql.eval.run import evaluate

    try:
        evaluate(args)
    except OSError as error:
        raise_disk_fault(error, args.out, "it goes on where it was")
        raise
    return 0


if __name__ == "__main__":
    run_program(main)
