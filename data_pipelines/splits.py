"""Which questions are trained on and which are held out, for sets that do not say it themselves."""

import hashlib
import math
from collections.abc import Sequence

from jax_t2sql.text2sql import Problem

# Share held out of a set without published splits.
HELDOUT_SHARE = 0.15


def split_by_hash(problems: Sequence[Problem], share: float) -> tuple[list[Problem], list[Problem]]:
    """(train, held out): a fixed split that does not depend on the order of the questions.

    All questions of one database with the same gold SQL fall on the same side. Of a small set one
    query at least is on either side, if there are two.

    Args:
      problems: to be split.
      share: expected part that is held out, of distinct gold queries; 0 holds out none.
    """
    places = [_place(problem) for problem in problems]
    bound = share
    if share > 0 and len(set(places)) > 1:
        lowest, highest = min(places), max(places)
        bound = max(math.nextafter(lowest, 1), min(share, highest))
    sides: tuple[list[Problem], list[Problem]] = ([], [])
    for problem, place in zip(problems, places, strict=True):
        sides[place < bound].append(problem)
    return sides


def _place(problem: Problem) -> float:
    """Where a question's database and gold SQL lie between 0 and 1."""
    text = f"{problem.db_id}\0{' '.join(problem.gold_sql.lower().split())}"
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 2**32


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
