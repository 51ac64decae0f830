"""Natural perturbation: does a match survive on copies of the real database that differ a little?

Rows are resampled and values swapped within columns; keys stay what they are. Cheap, and the values
look like the real ones, so what breaks here breaks for a reason that a person believes. It proves
nothing.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from jax_t2sql.equivalence.arena import Arena, only_statement
from jax_t2sql.equivalence.catalog import Catalog, Rows, Table, read_catalog
from jax_t2sql.equivalence.choices import Choices
from jax_t2sql.equivalence.minimise import minimise
from jax_t2sql.equivalence.replay import Refutation, confirm
from jax_t2sql.equivalence.sample import needed_tables, read_rows, without_orphans
from jax_t2sql.equivalence.verdict import Verdict, refuted, unknown
from jax_t2sql.sql.compare import results_equal
from jax_t2sql.sql.database import connect_readonly
from jax_t2sql.sql.modes import Mode, parse_mode
from jax_t2sql.sql.schema import fold

_MOST_ROWS = 1_000  # a table
_KEPT = (0.3, 0.6, 0.9, 1.0)  # shares of rows, of which each copy draws one a table
_SWAPPED = 0.7  # of the columns that may be swapped


def perturb(rows: Rows, tables: Sequence[Table], rng: random.Random) -> Rows:
    """A copy with other rows and swapped values, in which every key and reference holds.

    Args:
      rows: of a database that keeps its constraints.
      tables: those to perturb, parents before children.

    Rows of a table with a key are drawn without repetition, others with it. Swapped are values of
    columns that belong to no key, refer to nothing and are referred to by nothing; no column of a
    table with CHECKs, which may tie columns together.
    """
    referred = {
        (fold(key.other_table), fold(column))
        for table in tables
        for key in table.foreign_keys
        for column in key.other_columns
    }
    new: Rows = {}
    for table in tables:
        kept = rows.get(table.name, [])
        count = round(len(kept) * rng.choice(_KEPT))
        drawn = rng.sample(kept, count) if table.keys else rng.choices(kept, k=count if kept else 0)
        new[table.name] = _swapped(drawn, table, referred, rng)
    return without_orphans(new, tables)


def _swapped(
    rows: list[tuple], table: Table, referred: set[tuple[str, str]], rng: random.Random
) -> list[tuple]:
    if table.checks:
        return rows
    bound = {fold(name) for key in table.keys for name in key.columns}
    bound |= {fold(name) for key in table.foreign_keys for name in key.columns}
    columns = [list(values) for values in zip(*rows, strict=True)]
    for column, values in zip(table.stored, columns, strict=False):
        name = fold(column.name)
        free = name not in bound and (fold(table.name), name) not in referred
        if free and rng.random() < _SWAPPED:
            rng.shuffle(values)
    return list(zip(*columns, strict=True))


def check_perturbed(
    gold: str,
    pred: str,
    database: str | Path,
    *,
    grading: Mode | str | None = "set",
    copies: int = 10,
    seconds: float = 1.5,
    seed: int = 0,
) -> Verdict:
    """Runs two queries on perturbed copies of a database.

    Args:
      gold, pred: the queries.
      database: the file. Of a table with more than a thousand rows a part is taken, rows that hold
        the queries' own texts first.
      copies: how many.
      seconds: processor time; fewer copies are tried where it runs out.
      seed: of the draws.

    Returns: "refuted" with source "perturbation" where some copy tells the two apart, else
      "unknown": a match that holds everywhere proves nothing. `broken` is the share of copies on
      which the match breaks.

    Raises:
      UserError: the database or the mode cannot be read.
    """
    start = time.thread_time()
    mode = grading if isinstance(grading, Mode) else parse_mode(grading)
    catalog = read_catalog(database)

    def spent() -> float:
        return time.thread_time() - start

    statements = []
    for name, sql in (("gold", gold), ("predicted", pred)):
        statement, refused = only_statement(sql)
        if refused:
            return unknown(f"the {name} query cannot be run: {refused}", cpu_seconds=spent())
        statements.append(statement)
    with Arena(catalog.ddl, catalog.tables) as arena:
        reads: set[tuple[str, str]] = set()
        for name, statement in zip(("gold", "predicted"), statements, strict=True):
            found = arena.reads(statement)
            if found is None:
                reason = f"the {name} query does not run: {arena.error}"
                return unknown(reason, cpu_seconds=spent())
            reads |= found
        tables = needed_tables(catalog, {table for table, _ in reads})
        rng = random.Random(seed)
        with closing(connect_readonly(database)) as connection:
            rows = read_rows(connection, tables, statements, most=_MOST_ROWS, rng=rng)
        pair = _Pair(catalog, tables, arena, mode, *statements)
        try:
            tally, witness = _try_copies(pair, rows, rng, copies, lambda: spent() < seconds)
            if witness is None:
                return unknown(_told(tally), cpu_seconds=spent(), broken=tally.share)
            # The time that is left, and as much again: a small counterexample is worth it.
            fewer = _fewer(pair, witness, lambda: spent() < 2 * seconds)
            result = confirm(catalog, fewer, gold, pred, mode)
        finally:
            pair.choices.close()
    if not isinstance(result, Refutation):
        return unknown(result, cpu_seconds=spent(), broken=tally.share)
    return refuted(
        reason=f"the match breaks on {tally.broken} of {tally.usable} perturbed copies",
        source="perturbation",
        database=result.database,
        gold=result.gold,
        pred=result.pred,
        cpu_seconds=spent(),
        broken=tally.share,
    )


@dataclass
class _Tally:
    """Copies on which both queries ran, and those of them on which they differed."""

    usable: int = 0
    broken: int = 0
    why: str = ""

    @property
    def share(self) -> float | None:
        return self.broken / self.usable if self.usable else None


class _Pair:
    """Two statements on one arena."""

    def __init__(
        self,
        catalog: Catalog,
        tables: Sequence[Table],
        arena: Arena,
        mode: Mode,
        gold: str,
        pred: str,
    ) -> None:
        self.tables, self.arena, self.mode = tables, arena, mode
        self.gold, self.pred = gold, pred
        self.choices = Choices(catalog, tables, gold, pred, mode)

    def differ(self, rows: Rows) -> bool | None:
        """Whether the two really differ on these rows; None where one of them does not run."""
        if not self.arena.load(rows):
            return None
        gold = self.arena.run(self.gold)
        pred = self.arena.run(self.pred) if gold is not None else None
        if gold is None or pred is None:
            return None
        return not results_equal(gold, pred, self.mode) and self.choices.real(rows, gold, pred)


def _try_copies(
    pair: _Pair, rows: Rows, rng: random.Random, copies: int, in_time: Callable[[], bool]
) -> tuple[_Tally, Rows | None]:
    """The tally, and the smallest copy that tells the two apart."""
    tally, witness = _Tally(), None
    for copy in _copies(pair, rows, rng, copies):
        differ = pair.differ(copy)
        if differ is None:
            tally.why = pair.arena.error
        else:
            tally.usable += 1
            tally.broken += differ
        if differ and (witness is None or _size(copy) < _size(witness)):
            witness = copy
        if not in_time():
            break
    return tally, witness


def _copies(pair: _Pair, rows: Rows, rng: random.Random, copies: int) -> Iterator[Rows]:
    for _ in range(copies):
        yield perturb(rows, pair.tables, rng)


def _size(rows: Rows) -> int:
    return sum(map(len, rows.values()))


def _fewer(pair: _Pair, rows: Rows, in_time: Callable[[], bool]) -> Rows:
    """Few of the rows that still tell the two apart; children go before their parents can."""

    def tells_apart(fewer: Rows) -> bool:
        return (
            in_time()
            and without_orphans(fewer, pair.tables) == fewer
            and pair.differ(fewer) is True
        )

    for _ in range(3):
        before = _size(rows)
        rows = minimise(rows, tells_apart, tries=400)
        if _size(rows) == before:
            break
    return rows


def _told(tally: _Tally) -> str:
    if not tally.usable:
        return f"no perturbed copy on which both queries run: {tally.why}"
    return f"the match holds on all {tally.usable} perturbed copies"
