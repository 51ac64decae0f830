"""Finding how whole columns of one result would have to move to give another.

Whether some order of columns does is as hard as the isomorphism of graphs, and harder for rows that
are to be among others. So this is a search: exact, quick on whatever tells columns apart at all,
and bounded. Past the bound it says so instead of guessing.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import add

from jax_t2sql.sql.undecided import Undecided

Row = tuple

# Cells looked at before a search gives up, and so many times those of the results besides. About
# half a second.
_MAX_CELLS = 5_000_000
_MAX_PASSES = 8


def permutations(
    gold: Sequence[Row], pred: Sequence[Row], *, contained: bool
) -> Iterator[tuple[int, ...]]:
    """Yields column orders under which the predicted rows become the gold rows, as multisets.

    Columns move as wholes; the values of a single row are never sorted. Columns that no row tells
    apart are interchangeable: of their orders one is yielded.

    Args:
      gold: rows of equal width, at least one.
      pred: rows of the same width, at least one.
      contained: ask that each row of pred be among gold's instead, however often.

    Yields: orders p with `gold[i][j] == pred[i'][p[j]]`.

    Raises:
      Undecided: after a bounded search, if it might go on.
    """
    gold_rows, pred_rows = _encode(gold, pred, counted=not contained)
    cells = (len(gold_rows) + len(pred_rows)) * len(gold_rows[0])
    search = _Search(contained, _MAX_CELLS + _MAX_PASSES * cells)
    width = len(gold[0])
    for matching in search.matchings(gold_rows, pred_rows):
        places = defaultdict(list)
        for j, label in enumerate(matching.pred_labels[:width]):
            places[label].append(j)
        yield tuple(places[label].pop() for label in matching.gold_labels[:width])


def reorder(rows: Sequence[Row], order: Sequence[int]) -> list[Row]:
    """The rows with their columns in this order."""
    return [tuple([row[j] for j in order]) for row in rows]


def _encode(
    gold: Sequence[Row], pred: Sequence[Row], *, counted: bool
) -> tuple[list[Row], list[Row]]:
    """The distinct rows, cells as small integers that are equal for equal values on both sides.

    With `counted`, one more column tells how often each row is there.
    """
    codes: dict = {}

    def encode(rows: Sequence[Row]) -> list[Row]:
        return [
            tuple([codes.setdefault(cell, len(codes)) for cell in row])
            # No cell is a tuple of a number, so that no value is taken for a count.
            + ((codes.setdefault((count,), len(codes)),) if counted else ())
            for row, count in Counter(rows).items()
        ]

    return encode(gold), encode(pred)


# Rows of gold and rows of pred, of which each of pred becomes one of gold.
_Group = tuple[list[Row], list[Row]]


@dataclass(frozen=True)
class _Matching:
    """Columns matched as far as some rows tell: those of one label on either side.

    Attributes:
      gold_labels, pred_labels: of each column; each label as often on both sides.
      groups: the rows that would tell more.
    """

    gold_labels: Row
    pred_labels: Row
    groups: list[_Group]


class _Search:
    """Matches rows one at a time, and with each row the columns that hold its values.

    A row of pred can become a row of gold only if under each label both hold the same values, each
    as often; whatever is left of that when a row has been matched narrows the others. (That is
    "individualise and refine", as programs for the isomorphism of graphs do.)
    """

    def __init__(self, contained: bool, cells: int) -> None:
        self._contained = contained
        self._cells = cells

    def matchings(self, gold: list[Row], pred: list[Row]) -> Iterator[_Matching]:
        """Those under which all rows of pred become rows of gold."""
        labels = self._first_labels(gold, pred)
        root = labels and self._refined([(gold, pred)], *labels)
        # By hand instead of by recursion: SQLite gives up to 2,000 columns.
        pending = [iter([root] if root else [])]
        while pending:
            matching = next(pending[-1], None)
            if matching is None:
                pending.pop()
            elif matching.groups:
                pending.append(self._narrower(matching))
            else:
                yield matching

    def _first_labels(self, gold: list[Row], pred: list[Row]) -> tuple[Row, Row] | None:
        """Columns of the same values have the same label; None if those do not balance."""
        if self._contained:
            return (0,) * len(gold[0]), (0,) * len(pred[0])
        names: dict = {}
        labels = [
            tuple(
                names.setdefault(tuple(sorted(column)), len(names))
                for column in zip(*rows, strict=True)
            )
            for rows in (gold, pred)
        ]
        return (labels[0], labels[1]) if sorted(labels[0]) == sorted(labels[1]) else None

    def _narrower(self, matching: _Matching) -> Iterator[_Matching]:
        """Whatever follows from matching one more row, the one with the least choice."""
        gold, pred = min(matching.groups, key=lambda group: len(group[0]))
        for row in gold:
            names: dict = {}
            pred_labels = _finer(matching.pred_labels, pred[0], names)
            gold_labels = _finer(matching.gold_labels, row, names)
            found = self._refined(matching.groups, gold_labels, pred_labels)
            if found:
                yield found

    def _refined(
        self, groups: list[_Group], gold_labels: Row, pred_labels: Row
    ) -> _Matching | None:
        """The groups divided by what their rows hold under these labels; None if that fails."""
        size = 1 + max(max(row) for group in groups for rows in group for row in rows)
        gold_offsets = [label * size for label in gold_labels]
        pred_offsets = [label * size for label in pred_labels]
        distinct = len(set(pred_labels))
        divided: list[_Group] = []
        for gold, pred in groups:
            self._spend((len(gold) + len(pred)) * len(gold_labels))
            parts: dict[Row, _Group] = {}
            for row in pred:
                key = tuple(sorted(map(add, pred_offsets, row)))
                parts.setdefault(key, ([], []))[1].append(row)
            for row in gold:
                part = parts.get(tuple(sorted(map(add, gold_offsets, row))))
                if part:
                    part[0].append(row)
                elif not self._contained:
                    return None
            for key, part in parts.items():
                # Rows of pred are distinct, so they become as many rows of gold.
                spare = len(part[0]) - len(part[1])
                if spare < 0 or (spare and not self._contained):
                    return None
                if len(set(key)) > distinct:  # else it tells no two columns of a label apart
                    divided.append(part)
        return _Matching(gold_labels, pred_labels, divided)

    def _spend(self, cells: int) -> None:
        self._cells -= cells
        if self._cells < 0:
            raise Undecided(
                "the columns of these results are too much alike to find the order in which they"
                ' agree, if there is one; compare them with column_order="position"'
            )


def _finer(labels: Row, row: Row, names: dict) -> Row:
    """Labels that tell apart the values of this row, too."""
    return tuple([names.setdefault(pair, len(names)) for pair in zip(labels, row, strict=True)])
