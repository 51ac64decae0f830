"""Which questions of a file get hints: all, those named, or those that a run never solved."""

from collections.abc import Sequence
from pathlib import Path

from jax_t2sql.errors import UserError
from jax_t2sql.hints import hint_name
from jax_t2sql.json_rows import json_rows
from jax_t2sql.text2sql import Problem
from jax_t2sql.tracking import spread


def questions_for_hints(
    problems: Sequence[Problem], *, ids: Path | None, unsolved_in: str | None, count: int | None
) -> list[Problem]:
    """The questions that all conditions leave, in order.

    Args:
      ids: JSON lines with the question_id of each that is wanted.
      unsolved_in: bus of a run: only what it asked and never got right without a hint.
      count: at most so many, spread evenly.

    Raises:
      UserError: a file or a bus cannot be read, or nothing is left.
    """
    if ids is not None:
        names = _named(ids)
        problems = [problem for problem in problems if problem.question_id in names]
        if not problems:
            raise UserError(f"--ids {ids} names none of the questions")
    if unsolved_in is not None:
        names = _unsolved(unsolved_in)
        problems = [p for p in problems if {p.question_id, hint_name(p)} & names]
        if not problems:
            raise UserError(f"--unsolved-in {unsolved_in} leaves none of the questions")
    if count is not None:
        problems = [problems[i] for i in spread(len(problems), count)]
    return list(problems)


def _named(path: Path) -> set[str]:
    if not path.is_file():
        raise UserError(f"--ids {path}: no such file; give JSON lines with a question_id")
    with open(path, "rb") as file:
        rows = [row for _, row in json_rows(file, path)]
    return {
        str(row["question_id"]) for row in rows if isinstance(row, dict) and "question_id" in row
    }


def _unsolved(bus: str) -> set[str]:
    """Ids of questions that a run never solved, also without the source that a mixture adds."""
    from jax_t2sql.bus import Log, open_store
    from jax_t2sql.history import History

    history = History()
    history.follow(Log.open(open_store(bus, create=False)).entries)
    never = [
        name
        for name, visits in history.visits.items()
        if not any(visit.outcome.solved for visit in visits)
    ]
    return {part for name in never for part in (name, name.partition("/")[2] or name)}
