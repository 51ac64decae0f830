"""Compare two evaluations over the same questions: is the difference more than chance?

    python -m jax_t2sql.eval compare RUN_A RUN_B

Each RUN is the --out of an evaluation. Prints both accuracies with 95 % Wilson intervals, their
difference with a paired bootstrap interval, the exact McNemar p-value, the same by difficulty, and
the questions that flipped. Of samples alone the winner of the vote counts (its first draw).
Questions that one of the two does not have, or that cannot be graded, are left out and counted.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from jax_t2sql.errors import UserError
from jax_t2sql.scores.run import EvalRun, read_run, shared_questions
from jax_t2sql.scores.summary import difficulty, share, shares_by
from jax_t2sql.scores.tables import console, interval, percent, printable, table, write_json
from jax_t2sql.stats import mcnemar, paired_bootstrap


@dataclass(frozen=True)
class CompareArgs:
    """Options of the program."""

    first: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_A")]
    """Folder of the first evaluation."""
    second: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_B")]
    """Folder of the second evaluation."""
    grader: str | None = None
    """Whose verdicts count; the first run's headline grader if not given."""
    key: str | None = None
    """Which answer key; the first run's headline key if not given."""
    seed: int = 0
    """Of the bootstrap."""
    shown: int = 20
    """Flipped questions printed, of each direction."""
    out: Path | None = None
    """Write the figures and all flipped questions to this JSON file, too."""


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Returns the exit status."""
    args = tyro.cli(
        CompareArgs,
        args=sys.argv[1:] if argv is None else argv,
        prog="python -m jax_t2sql.eval compare",
        description=__doc__,
    )
    if args.shown < 0:
        raise UserError(f"--shown is {args.shown}; it must be 0 or more")
    first, second = read_run(args.first), read_run(args.second)
    grader, key = first.choose(args.grader, args.key)
    second.choose(grader, key)
    found = compare(first, second, grader=grader, key=key, seed=args.seed)
    if args.out:
        write_json(args.out, found)
    _print(found, first, args.shown)
    return 0


def compare(
    first: EvalRun, second: EvalRun, *, grader: str, key: str, seed: int = 0
) -> dict[str, Any]:
    """The paired comparison of the answers that count in two runs (`EvalRun.correct`).

    Returns: grader, key, n; first and second (figures as of `summary.share`, with the run's name);
      left_out (questions that only one run can tell); difference (second minus first), low, high;
      p_value; gained and lost (ids of questions that only the second, only the first got right);
      by (difficulty: first, second, gained, lost as counts, p_value).

    Raises:
      UserError: no question is graded in both, or their gold queries differ.
    """
    shared = shared_questions([first, second], grader, key)
    changed = [
        name
        for name in shared
        if first.questions[name].golds[key].sql != second.questions[name].golds[key].sql
    ]
    if changed:
        raise UserError(
            f"{len(changed)} of {len(shared)} questions have another gold query in the second run,"
            f" the first of them {changed[0]!r}; compare runs that were graded with one answer key"
        )
    marks = [run.correct(grader, key) for run in (first, second)]
    a, b = ([scores[name] for name in shared] for scores in marks)
    gained = [name for name, x, y in zip(shared, a, b, strict=True) if y and not x]
    lost = [name for name, x, y in zip(shared, a, b, strict=True) if x and not y]
    bootstrap = paired_bootstrap(a, b, seed=seed)
    return {
        "grader": grader,
        "key": key,
        "n": len(shared),
        "left_out": len(set(first.questions) | set(second.questions)) - len(shared),
        "first": {"run": str(first.folder)} | share(a),
        "second": {"run": str(second.folder)} | share(b),
        "difference": bootstrap.difference,
        "low": bootstrap.low,
        "high": bootstrap.high,
        "seed": seed,
        "p_value": mcnemar(len(lost), len(gained)),
        "gained": gained,
        "lost": lost,
        "by": {"difficulty": _by_difficulty(first, shared, a, b)},
    }


def _by_difficulty(
    run: EvalRun, shared: Sequence[str], a: Sequence[bool], b: Sequence[bool]
) -> dict[str, dict[str, Any]]:
    groups = {name: [difficulty(run.questions[name])] for name in shared}
    sides = [shares_by(dict(zip(shared, marks, strict=True)), groups.get) for marks in (a, b)]
    found = {}
    for group, part in sides[0].items():
        flips = [y - x for name, x, y in zip(shared, a, b, strict=True) if groups[name] == [group]]
        gained, lost = flips.count(1), flips.count(-1)
        found[group] = {
            "first": part,
            "second": sides[1][group],
            "gained": gained,
            "lost": lost,
            "p_value": mcnemar(lost, gained),
        }
    return found


def _print(found: dict[str, Any], run: EvalRun, shown: int) -> None:
    out = console()
    rows = table(
        ["run", "accuracy", "95 % interval", "correct", "n"],
        title=f"grader {found['grader']}, answer key {found['key']}",
    )
    for side in ("first", "second"):
        part = found[side]
        rows.add_row(
            printable(part["run"]),
            percent(part["accuracy"]),
            interval(part),
            str(part["correct"]),
            str(part["n"]),
        )
    out.print(rows)
    points = [100 * found[name] for name in ("difference", "low", "high")]
    out.print(
        "difference {:+.1f} points, 95 % interval {:+.1f} to {:+.1f} (paired bootstrap)".format(
            *points
        )
    )
    verdict = "more than chance" if found["p_value"] < 0.05 else "may be chance"
    out.print(
        f"{len(found['gained'])} gained, {len(found['lost'])} lost: exact McNemar"
        f" p = {found['p_value']:.3g}, {verdict} at the 5 % level"
    )
    parts = found["by"]["difficulty"]
    if len(parts) > 1:
        rows = table(["difficulty", "first", "second", "gained", "lost", "McNemar p", "n"])
        for group, part in parts.items():
            rows.add_row(
                printable(group),
                *(percent(part[side]["accuracy"]) for side in ("first", "second")),
                str(part["gained"]),
                str(part["lost"]),
                f"{part['p_value']:.3g}",
                str(part["first"]["n"]),
            )
        out.print(rows)
    if found["left_out"]:
        out.print(f"{found['left_out']} questions left out: not graded in both runs")
    for direction in ("gained", "lost"):
        names = found[direction]
        if names and shown:
            out.print(f"\n{direction}:")
        for name in names[:shown]:
            question = run.questions[name]
            out.print(
                "  " + printable(f"{name} ({question.db_id}) {question.question}"), soft_wrap=True
            )
        if len(names) > shown > 0:
            out.print(f"  … and {len(names) - shown} more")
