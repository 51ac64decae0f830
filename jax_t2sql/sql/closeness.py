"""Equality of cells and rows with a tolerance for REAL numbers.

"Within a tolerance" is no equivalence, so it cannot be hashed as such. Here numbers are first put
in clusters that never part two close ones; equal cluster rows are then a necessary condition, cheap
to test. Where every cluster is tight (all its members close to each other) it is sufficient too;
else pairs are sought inside the groups that the clusters leave.
"""

import bisect
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from jax_t2sql.sql.undecided import Undecided

Row = tuple

# A search for pairs gives up after looking at so many.
_MAX_LOOKS = 2_000_000

# Equals itself, unlike the float, and nothing else. (SQLite itself stores NaN as NULL.)
NAN = ("NaN",)


def without_nan(rows: Iterable[Sequence]) -> list[Row]:
    """The rows as tuples, NaN cells replaced by a value that equals itself."""
    tuples = [tuple(row) for row in rows]
    if all(cell == cell for row in tuples for cell in row):
        return tuples
    return [tuple(cell if cell == cell else NAN for cell in row) for row in tuples]


def cells_close(a: object, b: object, rel_tol: float) -> bool:
    """Whether two cells hold one value.

    Integers, text, blobs and NULL exactly; two numbers of which one is REAL to a relative
    tolerance. Text never equals a number or a blob.
    """
    if a == b:
        return True
    if isinstance(a, float) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=rel_tol)
    return isinstance(a, int) and isinstance(b, float) and math.isclose(a, b, rel_tol=rel_tol)


def rows_close(a: Row, b: Row, rel_tol: float) -> bool:
    """Whether two rows hold the same values, place by place."""
    if a == b:
        return True
    return len(a) == len(b) and all(cells_close(x, y, rel_tol) for x, y in zip(a, b, strict=True))


def cluster(cells: Iterable[object], rel_tol: float) -> tuple[dict, bool]:
    """Groups close numbers.

    Returns: a map from each number that shares a cluster to the cluster's least number, and whether
      all clusters are tight. Sorted and chained: O(n log n).
    """
    reals: set[float] = set()
    integers: set[int] = set()
    for cell in cells:
        if isinstance(cell, float):
            reals.add(cell)
        elif isinstance(cell, int):
            integers.add(cell)
    if not reals or not rel_tol:
        return {}, True
    ordered = sorted(reals)
    # Integers are exact among themselves: only those beside a REAL can join a cluster.
    beside = {n for n in integers if _near_any(n, ordered, rel_tol)}
    leader: dict = {}
    tight = True
    first = previous = min(ordered[0], *beside) if beside else ordered[0]
    inside = 0  # integers in the current cluster
    for number in sorted(reals | beside):
        if not math.isclose(previous, number, rel_tol=rel_tol):
            first, inside = number, 0
        inside += number in integers
        tight = tight and inside <= 1 and math.isclose(first, number, rel_tol=rel_tol)
        leader[number] = first
        previous = number
    return leader, tight


def _near_any(number: int, reals: list[float], rel_tol: float) -> bool:
    at = bisect.bisect_left(reals, number)
    return any(math.isclose(number, r, rel_tol=rel_tol) for r in reals[max(at - 1, 0) : at + 1])


def relabel(rows: Iterable[Row], leader: dict) -> list[Row]:
    """The rows with each clustered number replaced by its cluster's leader."""
    if not leader:
        return list(rows)
    # An integer equals the REAL of its value as a key, so a text or blob alone is never one.
    return [tuple([leader.get(cell, cell) for cell in row]) for row in rows]


def pairs_up(gold: Sequence[Row], pred: Sequence[Row], leader: dict, rel_tol: float) -> bool:
    """Whether the rows can be paired one to one, each pair close."""
    gold_groups, pred_groups = _groups(gold, leader), _groups(pred, leader)
    if {k: len(v) for k, v in gold_groups.items()} != {k: len(v) for k, v in pred_groups.items()}:
        return False
    return all(_match(rows, pred_groups[key], rel_tol) for key, rows in gold_groups.items())


def covers(rows: Sequence[Row], others: Sequence[Row], leader: dict, rel_tol: float) -> bool:
    """Whether each of the rows has a close one among the others."""
    exact = set(others)
    groups = _groups(exact, leader)
    for key, group in _groups(set(rows) - exact, leader).items():
        if key not in groups:
            return False
        window = _Window(groups[key], rel_tol)
        if not all(any(True for _ in window.close_to(row)) for row in group):
            return False
    return True


def _groups(rows: Iterable[Row], leader: dict) -> dict[Row, list[Row]]:
    rows = list(rows)
    groups = defaultdict(list)
    for key, row in zip(relabel(rows, leader), rows, strict=True):
        groups[key].append(row)
    return groups


class _Window:
    """Rows of one group (equal but for close numbers), searchable by their most varied column."""

    def __init__(self, rows: Sequence[Row], rel_tol: float) -> None:
        self._rel_tol = rel_tol
        self._looks = 0
        columns = list(zip(*rows, strict=True))
        self._column = max(range(len(columns)), key=lambda j: len(set(columns[j])))
        self.rows = self.ordered(rows)
        self._keys = [row[self._column] for row in self.rows]

    def ordered(self, rows: Iterable[Row]) -> list[Row]:
        """Rows of the same group, sorted. (Only close numbers differ, so all is comparable.)"""
        return sorted(rows, key=lambda row: (row[self._column], row))

    def close_to(self, row: Row) -> Iterator[int]:
        """Indices of the rows close to this one; Undecided once that has been too much work."""
        key = row[self._column]
        low, high = 0, len(self.rows)
        if isinstance(key, (int, float)) and math.isfinite(key):
            slack = abs(key) * 2 * self._rel_tol  # wider than the tolerance; rows_close decides
            low = bisect.bisect_left(self._keys, key - slack)
            high = bisect.bisect_right(self._keys, key + slack)
        for i in range(low, high):
            self._looks += 1
            if self._looks > _MAX_LOOKS:
                raise Undecided(
                    "these results hold too many numbers closer to each other than the tolerance to"
                    " pair them; compare them with a smaller rel_tol"
                )
            if rows_close(row, self.rows[i], self._rel_tol):
                yield i


def _match(gold: list[Row], pred: list[Row], rel_tol: float) -> bool:
    """Whether two groups of equal size have a perfect matching of close rows.

    Sorted pairs settle every case in which one column varies. The rest goes to augmenting paths
    (Kuhn 1955), with a cap on the work that only a deliberate construction reaches.
    """
    if Counter(gold) == Counter(pred):
        return True
    window = _Window(pred, rel_tol)
    gold = window.ordered(gold)
    if all(rows_close(a, b, rel_tol) for a, b in zip(gold, window.rows, strict=True)):
        return True
    owner: dict[int, int] = {}  # index in window.rows -> index in gold
    held: dict[int, int] = {}  # the inverse
    for start in range(len(gold)):
        reached_from: dict[int, int] = {}
        free, queue = None, [start]
        while queue and free is None:
            g = queue.pop()
            for p in window.close_to(gold[g]):
                if p not in reached_from:
                    reached_from[p] = g
                    if p not in owner:
                        free = p
                        break
                    queue.append(owner[p])
        if free is None:
            return False
        while free is not None:  # shift every pairing along the path by one
            g = reached_from[free]
            owner[free] = g
            held[g], free = free, held.get(g)
    return True
