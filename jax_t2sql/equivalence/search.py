"""Search for a small database on which two queries differ."""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jax_t2sql.equivalence.arena import Arena, only_statement
from jax_t2sql.equivalence.catalog import Catalog, Rows
from jax_t2sql.equivalence.choices import Choices
from jax_t2sql.equivalence.fill import draw
from jax_t2sql.equivalence.grow import Pattern, grow, pattern
from jax_t2sql.equivalence.mend import mend
from jax_t2sql.equivalence.minimise import minimise
from jax_t2sql.equivalence.mutate import Corpus
from jax_t2sql.equivalence.outline import outline
from jax_t2sql.equivalence.plan import Plan, make_plan
from jax_t2sql.equivalence.replay import Refutation, confirm
from jax_t2sql.sql.compare import results_equal
from jax_t2sql.sql.modes import Mode
from jax_t2sql.sql.schema import fold
from jax_t2sql.sql.tokens import significant


@dataclass(frozen=True)
class Found:
    """How a search ended.

    Attributes:
      refutation: the replayed counterexample, None if none was found.
      rows: its rows.
      reason: why there is none.
      tried: databases tried.
      free: differences that SQLite was free to make.
      runnable: whether both queries run at all.
    """

    refutation: Refutation | None = None
    rows: Rows | None = None
    reason: str = ""
    tried: int = 0
    free: int = 0
    runnable: bool = True


def search(
    gold: str,
    pred: str,
    catalog: Catalog,
    *,
    mode: Mode,
    seconds: float,
    seed: int = 0,
    pools: Mapping[tuple[str, str], Sequence[object]] | None = None,
) -> Found:
    """Looks for a database that tells two queries apart.

    Args:
      seconds: processor time.
      seed: of the random draws; the same seed tries the same databases.
      pools: values by folded (table, column), where only such may be used.
    """
    deadline = time.process_time() + seconds
    statements = []
    for name, sql in (("gold", gold), ("predicted", pred)):
        statement, refused = only_statement(sql)
        if refused:
            return Found(reason=f"the {name} query cannot be run: {refused}", runnable=False)
        statements.append(statement)
    with Arena(catalog.ddl, catalog.tables) as arena:
        reads: set[tuple[str, str]] = set()
        for name, statement in zip(("gold", "predicted"), statements, strict=True):
            found = arena.reads(statement)
            if found is None:
                reason = f"the {name} query does not run: {arena.error}"
                return Found(reason=reason, runnable=False)
            reads |= found | _merged(statement, catalog)
        outlines = [outline(statement, catalog) for statement in statements]
        plan = make_plan(catalog, reads, outlines, pools=pools)
        patterns = [pattern(found, plan) for found in outlines]
        return _Search(arena, catalog, plan, patterns, statements, mode, seed).until(deadline)


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


class _Search:
    def __init__(
        self,
        arena: Arena,
        catalog: Catalog,
        plan: Plan,
        patterns: Sequence[Pattern],
        statements: Sequence[str],
        mode: Mode,
        seed: int,
    ) -> None:
        self.arena, self.catalog, self.plan, self.mode = arena, catalog, plan, mode
        self.gold, self.pred = statements
        self.patterns = patterns
        self.rng = random.Random(seed)
        self.choices = Choices(catalog, plan.tables, self.gold, self.pred, mode)
        self.corpus = Corpus(plan, self.rng)
        self.tried = self.free = self.failed = 0

    def until(self, deadline: float) -> Found:
        last = ""
        try:
            for rows in self._candidates():
                if time.process_time() > deadline:
                    break
                self.tried += 1
                if not self._differs(rows):
                    continue
                if not self._real(rows):
                    self.free += 1
                    self.corpus.promise(rows)
                    continue
                rows = minimise(rows, self._tells_apart)
                result = confirm(self.catalog, rows, self.gold, self.pred, self.mode)
                if isinstance(result, Refutation):
                    return Found(result, rows, tried=self.tried, free=self.free)
                last = result
        finally:
            self.choices.close()
        reason = f"no difference on {self.tried:,} small databases"
        if self.free:
            reason += f" but {self.free:,} that SQLite was free to make"
        if last:
            reason += f"; {last}"
        if self.failed == self.tried and self.tried:
            reason = f"a query failed on all {self.tried:,} databases tried: {self.arena.error}"
        return Found(reason=reason, tried=self.tried, free=self.free)

    def _candidates(self) -> Iterator[Rows]:
        yield {sheet.name: [] for sheet in self.plan.sheets}
        for number in range(40):
            yield self._grown() if number % 4 == 0 else draw(self.plan, self.rng)
        while True:
            for _ in range(3):
                yield draw(self.plan, self.rng)
                yield self._grown()
                yield self.corpus.mutant()

    def _grown(self) -> Rows:
        return grow(self.patterns, self.plan, self.rng)

    def _differs(self, rows: Rows) -> bool:
        """Runs both queries; remembers what they gave."""
        self.seen = None
        if not self.arena.load(rows):
            rows = self._accepted(rows)
        gold = self.arena.run(self.gold)
        pred = self.arena.run(self.pred) if gold is not None else None
        if pred is None:
            self.failed += 1
            return False
        if gold == pred and self.mode.kind != "subset" or results_equal(gold, pred, self.mode):
            self.corpus.add(rows, gold, pred)
            return False
        self.seen = (rows, gold, pred)
        return True

    def _accepted(self, rows: Rows) -> Rows:
        """Those of the rows that SQLite takes: it knows CHECKs, and we do not."""
        self.arena.load({})
        kept = {
            sheet.name: [row for row in rows[sheet.name] if self.arena.accepts(sheet.name, row)]
            for sheet in self.plan.sheets
        }
        kept = mend(kept, self.plan, self.rng)
        if not self.arena.load(kept):
            kept = {sheet.name: [] for sheet in self.plan.sheets}
            self.arena.load(kept)
        return kept

    def _real(self, rows: Rows) -> bool:
        rows, gold, pred = self.seen
        return self.choices.real(rows, gold, pred)

    def _tells_apart(self, rows: Rows) -> bool:
        mended = mend(rows, self.plan, self.rng)
        return mended == rows and self._differs(rows) and self._real(rows)
