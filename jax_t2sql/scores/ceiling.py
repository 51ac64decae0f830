"""What several evaluations of the same questions can do together, and which questions flip.

    python -m jax_t2sql.eval ceiling RUN [RUN …]

Each RUN is the --out of an evaluation over the same questions, in the order in which they came
about; each may hold several answers a question. Prints the best solve rate a question has in any
run, averaged (the ceiling of choosing the best run for each question), the share solved reliably
(every answer of every run right), sometimes and never, and the questions that keep flipping.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import tyro

from jax_t2sql.errors import UserError
from jax_t2sql.scores.run import EvalRun, read_run, shared_questions
from jax_t2sql.scores.summary import share
from jax_t2sql.scores.tables import console, interval, percent, printable, table, write_json


@dataclass(frozen=True)
class CeilingArgs:
    """Options of the program."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folders of evaluations, oldest first."""
    grader: str | None = None
    """Whose verdicts count; the first run's headline grader if not given."""
    key: str | None = None
    """Which answer key; the first run's headline key if not given."""
    shown: int = 20
    """Flipping questions printed."""
    out: Path | None = None
    """Write the figures, and each question's solve rates, to this JSON file, too."""


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Returns the exit status."""
    args = tyro.cli(
        CeilingArgs,
        args=sys.argv[1:] if argv is None else argv,
        prog="python -m jax_t2sql.eval ceiling",
        description=__doc__,
    )
    if not args.runs:
        raise UserError("no run is named; give the --out folders of evaluations")
    if args.shown < 0:
        raise UserError(f"--shown is {args.shown}; it must be 0 or more")
    runs = [read_run(folder) for folder in args.runs]
    grader, key = runs[0].choose(args.grader, args.key)
    for run in runs[1:]:
        run.choose(grader, key)
    found = ceiling(runs, grader=grader, key=key)
    if args.out:
        write_json(args.out, found)
    _print(found, runs, args.shown)
    return 0


def ceiling(runs: Sequence[EvalRun], *, grader: str, key: str) -> dict[str, Any]:
    """Solve rates of questions over runs.

    A question's solve rate in a run is the share of its answers there that are right. It flips
    where the first answers of two runs, one after the other, are right and wrong. What flips twice
    is recurring; of two runs, what flips once.

    Returns: grader, key, n; runs (figures as of `summary.share`, of first answers); best (mean over
      the questions of their best run's solve rate); reliably, sometimes, never (shares); flipping
      (ids of recurring ones with their number of flips, most first); questions (solve rates by run
      of each question).

    Raises:
      UserError: the runs have no question in common.
    """
    shared = shared_questions(runs, grader, key)
    marks = [run.marks(grader, key) for run in runs]
    firsts = [run.correct(grader, key) for run in runs]
    rates = {name: [fmean(m[name].values()) for m in marks] for name in shared}
    flips = {
        name: sum(a[name] != b[name] for a, b in zip(firsts, firsts[1:], strict=False))
        for name in shared
    }
    recurring = 2 if len(runs) > 2 else 1
    flipping = sorted((n for n in shared if flips[n] >= recurring), key=lambda n: -flips[n])
    always = sum(min(rate) == 1 for rate in rates.values())
    never = sum(max(rate) == 0 for rate in rates.values())
    return {
        "grader": grader,
        "key": key,
        "n": len(shared),
        "runs": [
            {"run": str(run.folder)} | share(first[name] for name in shared)
            for run, first in zip(runs, firsts, strict=True)
        ],
        "best": fmean(max(rate) for rate in rates.values()),
        "reliably": always / len(shared),
        "sometimes": (len(shared) - always - never) / len(shared),
        "never": never / len(shared),
        "flipping": [{"question_id": name, "flips": flips[name]} for name in flipping],
        "questions": rates,
    }


def _print(found: dict[str, Any], runs: Sequence[EvalRun], shown: int) -> None:
    out = console()
    rows = table(
        ["run", "accuracy", "95 % interval"],
        title=f"{found['n']} questions in common, grader {found['grader']}, answer key"
        f" {found['key']}",
    )
    for run in found["runs"]:
        rows.add_row(printable(run["run"]), percent(run["accuracy"]), interval(run))
    rows.add_section()
    for label, name in (
        ("mean of each question's best solve rate", "best"),
        ("solved reliably", "reliably"),
        ("solved sometimes", "sometimes"),
        ("never solved", "never"),
    ):
        rows.add_row(label, percent(found[name]), "")
    out.print(rows)
    flipping = found["flipping"]
    out.print(f"{len(flipping)} questions keep flipping between right and wrong")
    for row in flipping[:shown]:
        question = runs[0].questions[row["question_id"]]
        told = f"{row['question_id']} ({question.db_id}, {row['flips']}×) {question.question}"
        out.print("  " + printable(told), soft_wrap=True)
    if len(flipping) > shown > 0:
        out.print(f"  … and {len(flipping) - shown} more")
