"""A first guess at whose fault a wrong answer is: the model's, the question's or the benchmark's.

Two sides with three kinds each, besides the model's own errors. Defects of the benchmark are those
that annotators of BIRD and Spider 2.0 sorted: the gold query does not fit the question (E1), the
database (E2) or the external knowledge (E3). Ambiguity (their E4: several readings, or an unclear
form of the answer) is split into its two named halves and names that fit several columns.

A guess from a few signs, to be looked over by a person: never counted, never taken off a score.

Source of the kinds: T. Jin, Y. Choi, Y. Zhu, D. Kang, "Pervasive Annotation Errors Break
Text-to-SQL Benchmarks and Leaderboards" (2026), E1 to E4; for names that fit several columns,
A. Bhaskar et al., "Benchmarking and Improving Text-to-SQL Generation under Ambiguity" (EMNLP 2023).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jax_t2sql.scores.differences import Difference
from jax_t2sql.sql import Outcome, is_empty, results_equal

CLASSES = {
    "ambiguity/reading": "the question can be read in several ways",
    "ambiguity/names": "several columns or tables fit what is asked for",
    "ambiguity/output": "what the answer should look like is open: columns, duplicates, order",
    "defect/question": "the gold query does not fit the question",
    "defect/database": "the gold query does not fit what is in the database",
    "defect/knowledge": "the gold query does not fit the external knowledge",
    "model": "the model's error, as far as can be seen",
}
_OUTPUT = {"column order", "extra column", "missing column", "DISTINCT", "order"}
_READING = {"NULL filter", "limit", "join kind", "order", "DISTINCT", "other comparison"}
_NAMES = {"other column", "join condition"}
_LITERALS = re.compile(r"'((?:[^']|'')*)'|\"([^\"]*)\"|(?<![\w.])(\d+(?:\.\d+)?)(?![\w.])")
_WORDS = re.compile(r"[A-Za-z]{3,}")


@dataclass(frozen=True)
class Guess:
    """A class of `CLASSES` and the sign that speaks for it."""

    name: str
    why: str


def guess(
    *,
    question: str,
    evidence: str,
    gold: str,
    pred: str | None,
    found: Sequence[Difference],
    gold_outcome: Outcome | None,
    pred_outcome: Outcome | None,
) -> Guess:
    """The first class that a sign speaks for; the model's error where none does."""
    if pred is None or pred_outcome is None or not pred_outcome.ok:
        return Guess("model", "there is no result to compare")
    if gold_outcome is None or not gold_outcome.ok:
        return Guess("defect/database", "the gold query fails on this database")
    if is_empty(gold_outcome) and not is_empty(pred_outcome):
        return Guess("defect/database", "the gold result is empty and the predicted one is not")
    asked = _literals_asked(question)
    unasked = [text for text in asked if text in _literals(pred) and text not in _literals(gold)]
    if unasked:
        told = f"{unasked[0]!r} of the question is in the prediction and not in the gold query"
        return Guess("defect/question", told)
    known = [word for word in _named(evidence) if _uses(pred, word) and not _uses(gold, word)]
    if known:
        told = f"{known[0]!r} of the knowledge is in the prediction and not in the gold query"
        return Guess("defect/knowledge", told)
    kinds = {difference.kind for difference in found}
    if _same_but_for_columns(gold_outcome, pred_outcome):
        return Guess("ambiguity/output", "one result's columns are among the other's")
    if kinds and kinds <= _OUTPUT:
        return Guess("ambiguity/output", f"only {', '.join(sorted(kinds))} differs")
    if kinds and kinds <= _READING:
        return Guess("ambiguity/reading", f"only {', '.join(sorted(kinds))} differs")
    if kinds and kinds <= _NAMES:
        return Guess("ambiguity/names", f"only {', '.join(sorted(kinds))} differs")
    return Guess("model", "no sign of anything else")


def _literals(sql: str) -> set[str]:
    return {"".join(groups).lower() for groups in _LITERALS.findall(sql)}


def _literals_asked(question: str) -> list[str]:
    """Numbers and quoted texts of a question."""
    return [text for groups in _LITERALS.findall(question) if (text := "".join(groups).lower())]


def _named(evidence: str) -> list[str]:
    """Words of the knowledge that can be columns or values: those beside a sign of equality."""
    # Looked ahead and behind, so that both sides of one sign are found.
    parts = re.findall(r"[\w`\"'.]+(?=\s*[=<>])|(?<=[=<>])\s*[\w`\"'.]+", evidence)
    return [word for part in parts for word in _WORDS.findall(part)]


def _uses(sql: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", sql, re.IGNORECASE) is not None


def _same_but_for_columns(gold: Outcome, pred: Outcome) -> bool:
    """Whether the columns of the narrower result are all among the wider one's, value by value."""
    narrow, wide = sorted((gold, pred), key=lambda outcome: len(outcome.columns))
    if len(narrow.rows) != len(wide.rows) or not narrow.rows:
        return False
    theirs = [sorted(map(repr, column)) for column in zip(*wide.rows, strict=True)]
    for column in zip(*narrow.rows, strict=True):
        values = sorted(map(repr, column))
        if values not in theirs:
            return False
        theirs.remove(values)
    # Columns that hold the same values in rows paired otherwise are no reordering.
    width = len(narrow.columns)
    return width != len(wide.columns) or results_equal(
        narrow.rows, wide.rows, "multiset", column_order="any"
    )
