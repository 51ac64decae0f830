"""Search for a small database on which two queries differ."""

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from jax_t2sql.equivalence.arena import Arena, only_statement
from jax_t2sql.equivalence.catalog import Catalog, Rows
from jax_t2sql.equivalence.choices import Choices
from jax_t2sql.equivalence.fill import draw
from jax_t2sql.equivalence.grow import grow, pattern
from jax_t2sql.equivalence.mend import mend
from jax_t2sql.equivalence.minimise import minimise
from jax_t2sql.equivalence.mutate import Corpus
from jax_t2sql.equivalence.outline import outline
from jax_t2sql.equivalence.plan import make_plan
from jax_t2sql.equivalence.real import RealRows
from jax_t2sql.equivalence.replay import Refutation, confirm
from jax_t2sql.equivalence.verdict import Source
from jax_t2sql.sql.compare import distinct_rows, results_equal
from jax_t2sql.sql.modes import Mode
from jax_t2sql.sql.schema import fold
from jax_t2sql.sql.tokens import significant

_GRACE = 0.5  # seconds beyond the deadline in which a difference may be confirmed


@dataclass(frozen=True)
class Found:
    """A counterexample.

    Attributes:
      refutation: as replayed; rows: its rows; source: where they came from.
    """

    refutation: Refutation
    rows: Rows
    source: Source


class Search:
    """One search; it can be continued, and asked about rows that others propose.

    Attributes:
      unfit: why the queries cannot be run at all, "" if they can.
      tried: databases tried so far; free: differences among them that SQLite was free to make.
    """

    def __init__(
        self,
        gold: str,
        pred: str,
        catalog: Catalog,
        *,
        mode: Mode,
        seed: int = 0,
        real: RealRows | None = None,
        realistic: bool = False,
    ) -> None:
        """Prepares a search.

        Args:
          seed: of the random draws; the same seed tries the same databases.
          real: rows of the real database, as a second source.
          realistic: use no values but those of the real database, which then must be given.
        """
        self._catalog, self._mode = catalog, mode
        self._rng = random.Random(seed)
        self._stack = ExitStack()
        self._arena = self._stack.enter_context(Arena(catalog.ddl, catalog.tables))
        self.tried = self.free = self._failed = 0
        self._texts = (gold, pred)
        self._statements: list[str] = []
        self._last = ""
        self._deadline = float("inf")
        self._seen: tuple[Rows, list[tuple], list[tuple]] | None = None
        reads: set[tuple[str, str]] = set()
        self.unfit = ""
        for name, sql in (("gold", gold), ("predicted", pred)):
            statement, refused = only_statement(sql)
            found = None if refused else self._arena.reads(statement)
            if found is None:
                self.unfit = (
                    f"the {name} query cannot be run: {refused}"
                    if refused
                    else f"the {name} query does not run: {self._arena.error}"
                )
                return
            self._statements.append(statement)
            reads |= found | _merged(statement, catalog)
        outlines = [outline(statement, catalog) for statement in self._statements]
        pool_of = real.pool if real is not None and realistic else None
        self._plan = make_plan(catalog, reads, outlines, pool_of=pool_of)
        self._patterns = [pattern(found, self._plan) for found in outlines]
        bare = any(found.bare for found in outlines)
        self._choices = Choices(catalog, self._plan.tables, *self._statements, mode, bare=bare)
        self._stack.callback(self._choices.close)
        self._corpus = Corpus(self._plan, self._rng)
        self._real = real
        self._candidates = self._all_candidates(empty=not realistic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc) -> None:
        self._stack.close()

    def run(self, deadline: float, *, databases: int | None = None) -> Found | None:
        """Tries databases until one tells the queries apart.

        Args:
          deadline: in processor time of this process.
          databases: try so many at most.
        """
        self._deadline = deadline
        until = float("inf") if databases is None else self.tried + databases
        while self.tried < until and time.thread_time() < deadline:
            candidate = next(self._candidates, None)
            if candidate is None:
                break
            self.tried += 1
            found = self._judge(*candidate)
            if found is not None:
                return found
        return None

    def propose(self, rows: Rows, source: Source, *, deadline: float) -> Found | None:
        """Judges rows that somebody else has found; `deadline` as for `run`."""
        self._deadline = deadline
        found = {
            s.name: [s.relevant(row) for row in rows.get(s.name, ())] for s in self._plan.sheets
        }
        return self._judge(found, source)

    def _judge(self, rows: Rows, source: Source) -> Found | None:
        """Whether a database tells the queries apart: for sure, and in a replay."""
        if not self._differs(rows):
            return None
        if not self._is_real():
            self.free += 1
            self._corpus.promise(rows)
            return None
        rows = minimise(self._seen[0], self._tells_apart)
        if not (self._differs(rows) and self._is_real(thorough=True)):
            self.free += 1
            return None
        result = confirm(self._catalog, rows, *self._texts, self._mode)
        if isinstance(result, Refutation):
            return Found(result, rows, source)
        self._last = result
        return None

    @property
    def asks(self) -> int:
        """The largest number of rows that a query asks about, by LIMIT or COUNT; 0 for none."""
        return max(self._plan.sizes, default=0)

    @property
    def reason(self) -> str:
        """Why nothing was found."""
        if self.unfit:
            return self.unfit
        if self.tried and self._failed == self.tried:
            return f"a query failed on all {self.tried:,} databases tried: {self._arena.error}"
        reason = f"no difference on {self.tried:,} small databases"
        if self.free:
            reason += f" but {self.free:,} that SQLite was free to make"
        return f"{reason}; {self._last}" if self._last else reason

    def _all_candidates(self, *, empty: bool) -> Iterator[tuple[Rows, Source]]:
        plan, rng = self._plan, self._rng
        if empty or not plan.sheets:
            yield {sheet.name: [] for sheet in plan.sheets}, "search"
        if not plan.sheets:  # no table is read: one database is as good as another
            return
        for number in range(40):
            if number % 4 == 0:
                yield grow(self._patterns, plan, rng), "search"
            else:
                yield draw(plan, rng), "search"
        while True:
            for _ in range(3):
                if self._real is not None:
                    yield self._real.draw(plan, self._patterns, rng), "real-rows"
                yield draw(plan, rng), "search"
                yield grow(self._patterns, plan, rng), "search"
                yield self._corpus.mutant(), "search"

    def _differs(self, rows: Rows) -> bool:
        """Runs both queries; remembers what they gave if it differs."""
        self._seen = None
        if not self._arena.load(rows):
            rows = self._accepted(rows)
        gold = self._arena.run(self._statements[0])
        pred = self._arena.run(self._statements[1]) if gold is not None else None
        if pred is None:
            self._failed += 1
            return False
        if self._mode.kind == "subset" and distinct_rows(gold) < self._mode.count:
            return False  # gold lists the acceptable rows, and there are not enough to name
        if (gold == pred and self._mode.kind != "subset") or results_equal(gold, pred, self._mode):
            self._corpus.add(rows, gold, pred)
            return False
        self._seen = (rows, gold, pred)
        return True

    def _accepted(self, rows: Rows) -> Rows:
        """Those of the rows that SQLite takes: it knows CHECKs, and we do not."""
        self._arena.load({})
        kept = {
            sheet.name: [row for row in rows[sheet.name] if self._arena.accepts(sheet.name, row)]
            for sheet in self._plan.sheets
        }
        kept = mend(kept, self._plan, self._rng)
        if not self._arena.load(kept):
            kept = {sheet.name: [] for sheet in self._plan.sheets}
            self._arena.load(kept)
        return kept

    def _is_real(self, *, thorough: bool = False) -> bool:
        deadline = self._deadline + _GRACE
        return self._choices.real(*self._seen, thorough=thorough, deadline=deadline)

    def _tells_apart(self, rows: Rows) -> bool:
        if time.thread_time() > self._deadline:
            return False  # what has been found is to be confirmed, not polished
        mended = mend(rows, self._plan, self._rng)
        return mended == rows and self._differs(rows) and self._is_real()


def _merged(statement: str, catalog: Catalog) -> set[tuple[str, str]]:
    """Columns that NATURAL and USING may read: SQLite does not tell its authorizer of them."""
    tokens = significant(statement)
    if not any(token.is_word("NATURAL", "USING") for token in tokens):
        return set()
    named = {fold(token.value) for token in tokens if token.kind in ("name", "double", "quoted")}
    return {
        (fold(table.name), fold(column.name))
        for table in catalog.tables
        if fold(table.name) in named
        for column in table.columns
    }
