"""Finding how whole columns of one result would have to move to give another."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

Row = tuple

# Rows looked at while trying assignments. Columns that refinement cannot tell apart are mostly
# interchangeable, so the first try succeeds; what needs more than this is given up as different.
_MAX_VISITS = 5_000_000

_REFINEMENTS = 3


def permutations(gold: list[Row], pred: list[Row], *, subset: bool) -> Iterator[tuple[int, ...]]:
    """Yields column orders under which the predicted rows become the gold rows, as multisets.

    Columns move as wholes; the values of a single row are never sorted.

    Args:
      gold: rows of equal width.
      pred: rows of the same width.
      subset: ask that each row of pred be among gold's instead.

    Yields: orders p with `gold[i][j] == pred[i'][p[j]]`. Of columns with the same content one order
      is tried. Polynomial: refinement of column colours (Weisfeiler and Leman's) leaves few
      choices, and the search is capped.
    """
    gold_codes, pred_codes = _encode(gold, pred)
    if subset:
        candidates = _containing(gold_codes, pred_codes)
    else:
        candidates = _same_colour(gold_codes, pred_codes)
    if candidates is None:
        return
    yield from _search(gold_codes, pred_codes, candidates, _contained if subset else _same)


def ordered_permutation(gold: list[Row], pred: list[Row]) -> tuple[int, ...] | None:
    """A column order under which the predicted rows become the gold rows in their order, if any."""
    unused: dict[Row, list[int]] = {}
    for j, column in enumerate(zip(*pred, strict=True)):
        unused.setdefault(column, []).append(j)
    order = []
    for column in zip(*gold, strict=True):
        if not unused.get(column):
            return None
        order.append(unused[column].pop(0))
    return tuple(order)


def reorder(rows: list[Row], order: Sequence[int]) -> list[Row]:
    """The rows with their columns in this order."""
    return [tuple([row[j] for j in order]) for row in rows]


Columns = list[Row]  # of integer codes


def _encode(gold: list[Row], pred: list[Row]) -> tuple[Columns, Columns]:
    """Columns with values as small integers, equal for equal values on both sides."""
    codes: dict = {}

    def encode(rows: list[Row]) -> Columns:
        return [
            tuple([codes.setdefault(cell, len(codes)) for cell in column])
            for column in zip(*rows, strict=True)
        ]

    return encode(gold), encode(pred)


def _same_colour(gold: Columns, pred: Columns) -> list[list[int]] | None:
    """For each gold column the predicted ones of its colour; None if colours do not balance."""
    names: dict = {}

    def name(key) -> int:
        return names.setdefault(key, len(names))

    def refine(columns: Columns, colours: list[int]) -> list[int]:
        rows = [
            name(tuple(sorted(zip(colours, row, strict=True))))
            for row in zip(*columns, strict=True)
        ]
        return [
            name((colour, tuple(sorted(zip(rows, column, strict=True)))))
            for colour, column in zip(colours, columns, strict=True)
        ]

    gold_colours = [name(tuple(sorted(column))) for column in gold]
    pred_colours = [name(tuple(sorted(column))) for column in pred]
    for _ in range(_REFINEMENTS):
        if sorted(gold_colours) != sorted(pred_colours):
            return None
        if len(set(gold_colours)) == len(gold_colours):
            break
        gold_colours, pred_colours = refine(gold, gold_colours), refine(pred, pred_colours)
    if sorted(gold_colours) != sorted(pred_colours):
        return None
    return [[j for j, c in enumerate(pred_colours) if c == colour] for colour in gold_colours]


def _containing(gold: Columns, pred: Columns) -> list[list[int]] | None:
    values = [set(column) for column in pred]
    candidates = []
    for column in gold:
        present = set(column)
        candidates.append([j for j, needed in enumerate(values) if needed <= present])
    return candidates if all(candidates) else None


def _same(gold_rows: list[int], pred_rows: list[int]) -> bool:
    return Counter(gold_rows) == Counter(pred_rows)


def _contained(gold_rows: list[int], pred_rows: list[int]) -> bool:
    return set(pred_rows) <= set(gold_rows)


def _search(
    gold: Columns,
    pred: Columns,
    candidates: list[list[int]],
    agree: Callable[[list[int], list[int]], bool],
) -> Iterator[tuple[int, ...]]:
    """Assigns columns one at a time, fewest candidates first, while the partial rows agree."""
    sequence = sorted(range(len(gold)), key=lambda j: len(candidates[j]))
    visits = 0

    def choices(depth: int, gold_rows: list[int], pred_rows: list[int]):
        """The columns that may be assigned next, each with the partial rows that result."""
        nonlocal visits
        names: dict = {}
        longer_gold = _extend(gold_rows, gold[sequence[depth]], names)
        tried = set()
        for candidate in candidates[sequence[depth]]:
            if candidate in chosen or pred[candidate] in tried:
                continue
            tried.add(pred[candidate])
            visits += len(gold_rows) + len(pred_rows)
            if visits > _MAX_VISITS:
                return
            longer_pred = _extend(pred_rows, pred[candidate], names)
            if agree(longer_gold, longer_pred):
                yield candidate, longer_gold, longer_pred

    # By hand instead of by recursion: SQLite gives up to 2,000 columns.
    chosen: list[int] = []
    pending = [choices(0, [0] * len(gold[0]), [0] * len(pred[0]))]
    while pending:
        step = next(pending[-1], None)
        if step is None:
            pending.pop()
            if chosen:
                chosen.pop()
            continue
        chosen.append(step[0])
        if len(chosen) < len(gold):
            pending.append(choices(len(chosen), step[1], step[2]))
            continue
        yield tuple(chosen[sequence.index(j)] for j in range(len(gold)))
        chosen.pop()


def _extend(rows: list[int], column: Row, names: dict) -> list[int]:
    """Names of partial rows, longer by one column: equal names for equal partial rows."""
    return [names.setdefault(pair, len(names)) for pair in zip(rows, column, strict=True)]
