"""Which questions are trained on and which are held out, for sets that do not say it themselves."""

import hashlib
from collections.abc import Sequence

from jax_t2sql.text2sql import Problem

# Share held out of a set without published splits.
HELDOUT_SHARE = 0.15


def split_by_hash(problems: Sequence[Problem], share: float) -> tuple[list[Problem], list[Problem]]:
    """(train, held out): a fixed split that does not depend on the order of the questions.

    All questions of one database with the same gold SQL fall on the same side.

    Args:
      problems: to be split.
      share: expected part that is held out, of distinct gold queries.
    """

    def is_heldout(problem: Problem) -> bool:
        text = f"{problem.db_id}\0{' '.join(problem.gold_sql.lower().split())}"
        return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) < share * 2**32

    held = [is_heldout(problem) for problem in problems]
    return (
        [p for p, h in zip(problems, held, strict=True) if not h],
        [p for p, h in zip(problems, held, strict=True) if h],
    )


def split_by_marks(
    problems: Sequence[Problem], marks: Sequence[str | None]
) -> dict[str, list[Problem]] | None:
    """Splits by a mark on each question, in the order of their first occurrence.

    Returns: None where the marks say nothing: some are missing, or all are the same.
    """
    if None in marks or len(set(marks)) < 2:
        return None
    splits: dict[str, list[Problem]] = {}
    for problem, mark in zip(problems, marks, strict=True):
        splits.setdefault(str(mark), []).append(problem)
    return splits
