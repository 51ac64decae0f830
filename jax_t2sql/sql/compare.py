"""Is a predicted result the gold result?

Typed throughout: integers exactly, REALs to a relative tolerance, 1 equal to 1.0, text exactly
(case too), blobs never equal to text, NULL equal to NULL and to nothing else. Values stay in their
rows and rows in their columns: nothing is sorted inside a row, no column on its own.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Literal

from jax_t2sql.errors import UserError
from jax_t2sql.sql.closeness import (
    Row,
    cluster,
    covers,
    pairs_up,
    relabel,
    rows_close,
    without_nan,
)
from jax_t2sql.sql.columns import permutations, reorder
from jax_t2sql.sql.modes import Mode, parse_mode
from jax_t2sql.sql.undecided import Undecided

ColumnOrder = Literal["position", "any"]


def results_equal(
    gold_rows: Sequence[Sequence],
    pred_rows: Sequence[Sequence],
    mode: Mode | str | None,
    *,
    rel_tol: float = 1e-9,
    column_order: ColumnOrder = "position",
) -> bool:
    """Compares two results under a grading mode.

    The modes:
      set: the same distinct rows.
      multiset: the same rows, each as often; some one-to-one pairing has every pair equal.
      list: the same rows in the same order.
      subset,=,k: the prediction has exactly k distinct rows and each is one of gold's.
      subset,>=,k: the same with at least k. Duplicates are dropped before counting, as the public
        grader of the data that introduced these modes does; a k above the number of gold's distinct
        rows can never be met.
      bird: `set(map(tuple, gold)) == set(map(tuple, pred))`, the public BIRD evaluator's rule with
        Python's equality and no tolerance.

    Args:
      gold_rows, pred_rows: rows of cells (None, int, float, str, bytes).
      mode: a Mode, or text for `parse_mode`.
      rel_tol: relative tolerance between two numbers of which one is REAL; 0 compares exactly.
      column_order: "any" lets the prediction's columns stand in another order, moved as wholes and
        alike in every row.

    Raises:
      UserError: an unknown mode, or "any" asked of `bird`.
      Undecided: a search for the order of columns, or for pairs of close rows, met its bound; no
        result is called different because of that.
    """
    if not isinstance(mode, Mode):
        mode = parse_mode(mode)
    if column_order not in ("position", "any"):
        raise UserError(f'column_order is {column_order!r}; use "position" or "any"')
    if not 0 <= rel_tol < 1e-3:
        raise UserError(f"rel_tol is {rel_tol!r}; it must be from 0 to below 1e-3")
    if mode.kind == "bird":
        if column_order == "any":
            raise UserError('mode "bird" fixes the order of columns; use column_order="position"')
        return set(map(tuple, gold_rows)) == set(map(tuple, pred_rows))
    if mode.kind != "subset" and gold_rows == pred_rows:  # at the speed of C, and often so
        return True
    gold, pred = list(map(tuple, gold_rows)), list(map(tuple, pred_rows))
    if not _sizes_agree(gold, pred, mode):
        return False
    if not gold or not pred:
        return mode.kind != "subset" and not gold and not pred
    if _equal_exactly(gold, pred, mode):
        return True
    if _has_real(gold, pred):
        gold, pred = without_nan(gold), without_nan(pred)
    elif column_order == "position" and mode.kind != "subset":
        return False
    comparison = _Comparison(gold, pred, mode, rel_tol)
    if column_order == "position":
        return comparison.holds(pred)
    return comparison.holds_for_some_order()


def distinct_rows(rows: Sequence[Sequence], *, rel_tol: float = 1e-9) -> int:
    """Number of distinct rows, as `subset` counts them: close REALs are one value."""
    tuples = without_nan(rows)
    leader, _ = cluster((cell for row in tuples for cell in row), rel_tol)
    return len(set(relabel(tuples, leader)))


def _sizes_agree(gold: list[Row], pred: list[Row], mode: Mode) -> bool:
    """The cheap necessary conditions."""
    if gold and pred and {len(row) for row in gold} != {len(row) for row in pred}:
        return False
    if mode.kind in ("multiset", "list"):
        return len(gold) == len(pred)
    # An empty prediction is no answer to "name any k".
    return mode.kind == "set" or bool(pred)


def _equal_exactly(gold: list[Row], pred: list[Row], mode: Mode) -> bool:
    """The common case, decided by hashing alone. False decides nothing."""
    if mode.kind == "list":
        return gold == pred
    if mode.kind == "multiset":
        return Counter(gold) == Counter(pred)
    return mode.kind == "set" and set(gold) == set(pred)


def _has_real(*results: list[Row]) -> bool:
    """Whether some cell is a REAL: without one nothing is NaN, nor close but not equal."""
    types = {kind for rows in results for kind in set(map(type, chain.from_iterable(rows)))}
    return any(issubclass(kind, float) for kind in types)


class _Comparison:
    """One comparison of results that differ in some bit."""

    def __init__(self, gold: list[Row], pred: list[Row], mode: Mode, rel_tol: float) -> None:
        self.gold, self.pred, self.mode, self.rel_tol = gold, pred, mode, rel_tol
        cells = (cell for rows in (gold, pred) for row in rows for cell in row)
        self.leader, self.tight = cluster(cells, rel_tol)
        self.gold_labels = relabel(gold, self.leader)

    def holds(self, pred: list[Row]) -> bool:
        """Whether the prediction, its columns where they are, equals gold."""
        mode, rel_tol = self.mode, self.rel_tol
        if mode.kind == "list":
            return all(rows_close(a, b, rel_tol) for a, b in zip(self.gold, pred, strict=True))
        gold_labels, labels = self.gold_labels, relabel(pred, self.leader)
        if mode.kind == "multiset":
            if self.tight:
                return Counter(gold_labels) == Counter(labels)
            return pairs_up(self.gold, pred, self.leader, rel_tol)
        if mode.kind == "set":
            if set(gold_labels) != set(labels):
                return False
            return self.tight or (
                covers(self.gold, pred, self.leader, rel_tol)
                and covers(pred, self.gold, self.leader, rel_tol)
            )
        if not self._enough_rows(len(set(labels))) or not set(labels) <= set(gold_labels):
            return False
        return self.tight or covers(pred, self.gold, self.leader, rel_tol)

    def holds_for_some_order(self) -> bool:
        """The same with the prediction's columns in any one order."""
        if self.mode.kind == "list":
            gold_columns = list(zip(*self.gold, strict=True))
            pred_columns = list(zip(*self.pred, strict=True))
            return pairs_up(gold_columns, pred_columns, self.leader, self.rel_tol)
        gold, pred = self.gold_labels, relabel(self.pred, self.leader)
        if self.mode.kind != "multiset":
            gold, pred = list(set(gold)), list(set(pred))
        contained = self.mode.kind == "subset"
        if contained and not self._enough_rows(len(pred)):
            return False
        found = False
        for order in permutations(gold, pred, contained=contained):
            if self.tight or self.holds(reorder(self.pred, order)):
                return True
            found = True
        if found:
            # Columns alike but for close numbers have orders besides, which are not looked at.
            raise Undecided(
                "these results hold numbers closer to each other than the tolerance, in columns"
                " that may move; compare them with a smaller rel_tol"
            )
        return False

    def _enough_rows(self, distinct: int) -> bool:
        count = self.mode.count
        return distinct >= count if self.mode.at_least else distinct == count
