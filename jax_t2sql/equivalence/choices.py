"""Is a difference real, or one that SQLite was free to make?

Bare columns, ties under LIMIT, rows in no stated order, group_concat, sums of floats, random() and
'now': where the SQL leaves a choice, two right queries may differ. So both are run again and again
on the same rows, lying in other orders, scanned the other way, ties broken at random, at other
instants. Two queries differ for sure where each gives one result throughout, or where their results
never meet although every result has been seen more than once.
"""

import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from jax_t2sql.equivalence.arena import Arena, loose_ddl
from jax_t2sql.equivalence.catalog import Catalog, Rows, Table
from jax_t2sql.equivalence.chance import SHUFFLE, at_instant, has_clock, shuffled
from jax_t2sql.sql.compare import distinct_rows, results_equal
from jax_t2sql.sql.modes import Mode
from jax_t2sql.sql.schema import fold
from jax_t2sql.sql.tokens import significant


@dataclass(frozen=True)
class _Effort:
    """How long to look for other results.

    Attributes:
      settled: runs after which one result throughout is taken for the only one.
      runs: runs where there were several; times: how often each must then have been seen.
    """

    settled: int
    runs: int
    times: int


# A search meets thousands of differences by chance: what passes the first look is looked at again,
# when few rows are left, with odds that no number of tries makes likely.
_GLANCE = _Effort(settled=2, runs=2, times=2)  # where the text shows nothing to choose
_FIRST_LOOK = _Effort(settled=6, runs=48, times=2)
_SECOND_LOOK = _Effort(settled=60, runs=400, times=6)

# Without any of these words, and without bare columns, a query has one result as a set or bag: but
# for sums of REALs, and for texts that are equal by a collation and still not the same.
_CHANCY = frozenset({"LIMIT", "OVER", "GROUP_CONCAT", "STRING_AGG", "JSON_GROUP_ARRAY",
    "JSON_GROUP_OBJECT", "RANDOM", "RANDOMBLOB", "COLLATE"})  # fmt: skip
_SUMS = frozenset({"SUM", "AVG", "TOTAL"})

_INSTANTS = ("2026-11-30 12:00:00", "2019-02-28 23:59:59", "2033-07-01 00:00:00")
_ROW_IDS = ("rowid", "_rowid_", "oid")


class Choices:
    """Judges differences between two queries. Holds a database of its own; close it."""

    def __init__(
        self,
        catalog: Catalog,
        tables: Sequence[Table],
        gold: str,
        pred: str,
        mode: Mode,
        *,
        bare: bool = True,
    ) -> None:
        """Takes single statements that compile.

        Args:
          tables: those that hold rows.
          bare: whether one of the queries may have bare columns.
        """
        self._catalog, self._tables, self._mode = catalog, tables, mode
        self._gold, self._pred = gold, pred
        self._rng = random.Random(0)
        self._stack = ExitStack()
        self._arena: Arena | None = None
        self._deadline = float("inf")
        self._queries: list[tuple[str, str]] = []
        words = {t.text.upper() for sql in (gold, pred) for t in significant(sql)}
        columns = [column for table in tables for column in table.columns]
        self._chancy = (
            bare
            or mode.kind == "list"
            or not words.isdisjoint(_CHANCY)
            or any(column.collation != "BINARY" for column in columns)
            or (not words.isdisjoint(_SUMS) and any(c.affinity == "REAL" for c in columns))
        )

    def close(self) -> None:
        """Frees the database."""
        self._stack.close()

    def real(
        self,
        rows: Rows,
        gold: list[tuple],
        pred: list[tuple],
        *,
        thorough: bool = False,
        deadline: float = float("inf"),
    ) -> bool:
        """Whether a difference on these rows is the queries' own.

        Args:
          rows: the database; gold, pred: what the queries gave on it.
          thorough: look long enough to be sure; for the one that is to be reported.
          deadline: in processor time of this process; what is not settled by then does not count.
        """
        self._deadline = deadline
        if self._arena is None:
            self._open()
        effort = _GLANCE
        if self._chancy:
            effort = _SECOND_LOOK if thorough else _FIRST_LOOK
        return all(self._differ(rows, *pair, gold, pred, effort) for pair in self._queries)

    def _open(self) -> None:
        by_row_id = any(
            token.kind in ("name", "double", "quoted") and fold(token.value) in _ROW_IDS
            for sql in (self._gold, self._pred)
            for token in significant(sql)
        )
        ddl = self._catalog.ddl if by_row_id else loose_ddl(self._catalog, self._tables)
        self._arena = self._stack.enter_context(Arena(ddl, self._tables))
        self._arena.function(SHUFFLE, self._rng.random)
        clocked = has_clock(self._gold) or has_clock(self._pred)
        for instant in _INSTANTS if clocked else ("",):
            pair = [self._loosened(sql, instant) for sql in (self._gold, self._pred)]
            self._queries.append((pair[0], pair[1]))

    def _loosened(self, sql: str, instant: str) -> str:
        sql = at_instant(sql, instant) if instant else sql
        ordered = self._mode.kind == "list"
        for compounds in (True, False):
            loose = shuffled(sql, ordered=ordered, compounds=compounds)
            if self._arena.reads(loose) is not None:
                return loose
        return sql

    def _differ(
        self,
        rows: Rows,
        gold: str,
        pred: str,
        gold_seen: list[tuple],
        pred_seen: list[tuple],
        effort: _Effort,
    ) -> bool:
        golds, preds = _Results(self._mode), _Results(self._mode)
        # Turning the scans round has SQLite compile everything anew: not at every run, and not
        # for rows that lie backwards, which it would read as they lay before.
        block = max(effort.settled // 2, 2)
        for number in range(effort.runs):
            if number % block == 0:
                self._arena.reverse_scans(number // block % 2 == 1)
            if time.thread_time() > self._deadline:
                return False
            if not self._arena.load(self._arranged(rows, number)):
                return False
            for query, results in ((gold, golds), (pred, preds)):
                found = self._arena.run(query)
                if found is None:
                    return False
                fresh = results.add(found)
                others = preds if results is golds else golds
                if fresh and others.meets(found, self._mode, other_is_gold=results is golds):
                    return False
            if golds.settled and preds.settled:
                if number + 1 >= effort.settled:
                    break
            elif effort is _GLANCE:  # there is something to choose after all
                self._chancy = True
                return self._differ(rows, gold, pred, gold_seen, pred_seen, _FIRST_LOOK)
            elif number + 1 == _FIRST_LOOK.runs and not _known(golds, preds, _FIRST_LOOK.times):
                return False
        clocked = len(self._queries) > 1
        if not clocked and not (golds.holds(gold_seen) and preds.holds(pred_seen)):
            return False  # there is more to choose than is chosen here
        return _known(golds, preds, effort.times)

    def _arranged(self, rows: Rows, number: int) -> Rows:
        """The same rows in another order: as they are, backwards, then at random.

        Each row comes to lie first in its table once, and last once: where SQLite takes one row for
        many, it is the first or last that it meets.
        """
        if number == 0:
            return rows
        if number == 1:
            return {name: kept[::-1] for name, kept in rows.items()}
        return {name: self._mixed(kept, number - 2) for name, kept in rows.items()}

    def _mixed(self, kept: list[tuple], number: int) -> list[tuple]:
        if len(kept) < 2:
            return kept
        place = number // 2 % len(kept)
        others = self._rng.sample(kept[:place] + kept[place + 1 :], len(kept) - 1)
        return [*others, kept[place]] if number % 2 else [kept[place], *others]


class _Results:
    """Different results of one query, and how often each was seen."""

    def __init__(self, mode: Mode) -> None:
        # Whether two gold results are one: "subset" and "bird" are rules for predictions.
        self._mode = mode if mode.kind in ("list", "multiset") else Mode("set")
        self.seen: list[list[tuple]] = []
        self._times: list[int] = []
        self.sizes: Counter[int] = Counter()

    def add(self, result: list[tuple]) -> bool:
        """Whether it is one that was not seen before."""
        self.sizes[self._size(result)] += 1
        for i, known in enumerate(self.seen):
            if known == result or results_equal(known, result, self._mode):
                self._times[i] += 1
                return False
        self.seen.append(result)
        self._times.append(1)
        return True

    def meets(self, other: list[tuple], mode: Mode, *, other_is_gold: bool) -> bool:
        """Whether a result of the other query equals one of these."""
        pairs = [(other, one) if other_is_gold else (one, other) for one in self.seen]
        return any(results_equal(gold, pred, mode) for gold, pred in pairs)

    @property
    def settled(self) -> bool:
        """Whether there was one result throughout."""
        return len(self.seen) == 1

    def known(self, times: int) -> bool:
        """Whether all results were seen so often that others are unlikely."""
        return self.settled or min(self._times) >= times

    def sizes_known(self, times: int) -> bool:
        """The same of the numbers of rows."""
        return len(self.sizes) == 1 or min(self.sizes.values()) >= times

    def _size(self, result: list[tuple]) -> int:
        return distinct_rows(result) if self._mode.kind == "set" else len(result)

    def holds(self, result: list[tuple]) -> bool:
        """Whether a result is among those seen."""
        return any(k == result or results_equal(k, result, self._mode) for k in self.seen)


def _known(golds: _Results, preds: _Results, times: int) -> bool:
    """Whether results that did not meet so far never will."""
    if golds.known(times) and preds.known(times):
        return True
    # Of many results few are seen often. Their sizes are fewer, and equal results agree in it.
    known = golds.sizes_known(times) and preds.sizes_known(times)
    return known and golds.sizes.keys().isdisjoint(preds.sizes)
