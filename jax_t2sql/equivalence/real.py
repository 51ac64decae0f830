"""Rows and values of the real database, as a source of counterexamples that a person believes."""

import os
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Self

from jax_t2sql.equivalence.catalog import Rows, Table
from jax_t2sql.equivalence.grow import Pattern
from jax_t2sql.equivalence.mend import without_faults
from jax_t2sql.equivalence.plan import Plan, Pool, Sheet
from jax_t2sql.sql.database import connect_readonly, file_identity
from jax_t2sql.sql.schema import fold, quote_identifier

_SAMPLE = 1_000  # rows of a table
_STEPS = 200_000  # of SQLite, for one look-up: some milliseconds
_FOUND = 20  # rows of a look-up


class RealRows:
    """Draws small databases out of a real one. Holds the file open; close it."""

    def __init__(self, path: str | os.PathLike) -> None:
        """Opens a database file; raises UserError if that fails."""
        self._path = str(path)
        self._identity = file_identity(path)
        self._connection = connect_readonly(path)
        self._steps = 0
        self._connection.set_progress_handler(self._out_of_work, 1_000)
        self._looked_up: dict[tuple, list[tuple]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc) -> None:
        self._connection.set_progress_handler(None, 0)
        self._connection.close()

    def pool(self, table: Table, place: int) -> Pool:
        """What stands in a column, as far as a sample of the rows tells."""
        values = [row[place] for row in self._sample(table)]
        there = [value for value in values if value is not None]
        distinct = tuple(dict.fromkeys(there))
        return Pool(
            distinct,
            holds=lambda value: bool(self._look_up(table, place, value)),
            has_null=len(there) < len(values) or not values,
            unique=len(distinct) == len(there) >= 20,
        )

    def draw(self, plan: Plan, patterns: Sequence[Pattern], rng: random.Random) -> Rows:
        """Real rows that meet as a query joins them, with their parents, and some others."""
        rows: Rows = {sheet.name: [] for sheet in plan.sheets}
        chosen = rng.choice(patterns)
        for _ in range(rng.choice((1, 1, 2, 3, 4))):
            self._joined(chosen, rows, rng)
        for sheet in plan.sheets:
            sample = self._sample(sheet.table)
            if sample and rng.random() < 0.3:
                rows[sheet.name] += rng.sample(sample, min(rng.randint(1, 3), len(sample)))
        for sheet in reversed(plan.sheets):
            self._add_parents(sheet, plan, rows)
        return without_faults(
            {s.name: [s.relevant(row) for row in dict.fromkeys(rows[s.name])] for s in plan.sheets},
            plan,
        )

    def _joined(self, chosen: Pattern, rows: Rows, rng: random.Random) -> None:
        """One row for each occurrence of a table, equal where the query asks for it."""
        values: dict[int, object] = {}
        order = [number for number, sheet in enumerate(chosen.sheets) if sheet is not None]
        rng.shuffle(order)
        while order:
            # Next the one that is most bound by those before.
            number = max(order, key=lambda n: len(self._bound(chosen, n, values)))
            order.remove(number)
            sheet = chosen.sheets[number]
            bound = self._bound(chosen, number, values)
            found = self._matching(sheet, bound, rng)
            if not found:
                continue
            row = rng.choice(found)
            rows[sheet.name].append(row)
            for cell in sheet.cells:
                key = chosen.classes.get((number, fold(cell.column.name)))
                if key is not None and row[cell.place] is not None:
                    values.setdefault(key, row[cell.place])

    def _bound(self, chosen: Pattern, number: int, values: dict[int, object]) -> dict[int, object]:
        """Values by place that a row must have."""
        sheet = chosen.sheets[number]
        keys = {c.place: chosen.classes.get((number, fold(c.column.name))) for c in sheet.cells}
        return {place: values[key] for place, key in keys.items() if key in values}

    def _matching(self, sheet: Sheet, bound: dict[int, object], rng: random.Random) -> list[tuple]:
        """Real rows with these values; without any, rows that satisfy a comparison of the query."""
        if bound:
            place, value = next(iter(bound.items()))
            found = self._look_up(sheet.table, place, value)
            return [row for row in found if all(row[p] == v for p, v in bound.items())] or found
        compared = [cell for cell in sheet.cells if cell.read and cell.hits]
        if compared and rng.random() < 0.8:
            cell = rng.choice(compared)
            found = self._look_up(sheet.table, cell.place, rng.choice(cell.hits))
            if found:
                return found
        return self._sample(sheet.table)

    def _add_parents(self, sheet: Sheet, plan: Plan, rows: Rows) -> None:
        for link in sheet.links:
            other = plan.by_name[link.other]
            for row in list(rows[sheet.name]):
                values = [row[place] for place in link.places]
                if None not in values:
                    found = self._look_up(other.table, link.other_places[0], values[0])
                    rows[link.other] += [
                        p for p in found if [p[o] for o in link.other_places] == values
                    ][:1]

    def _sample(self, table: Table) -> list[tuple]:
        return _sampled(self._path, self._identity, table)

    def _look_up(self, table: Table, place: int, value: object) -> list[tuple]:
        key = (table.name, place, value)
        if key not in self._looked_up:
            sample = self._sample(table)
            if len(sample) < _SAMPLE:
                found = [row for row in sample if row[place] == value][:_FOUND]
            else:
                name = quote_identifier(table.stored[place].name)
                self._steps = 0
                query = f"{_select(table)} WHERE {name} = ? LIMIT {_FOUND}"
                try:
                    found = self._connection.execute(query, (value,)).fetchall()
                except (sqlite3.Error, UnicodeError, OverflowError):  # too long a scan
                    found = [row for row in sample if row[place] == value][:_FOUND]
            self._looked_up[key] = found
        return self._looked_up[key]

    def _out_of_work(self) -> bool:
        self._steps += 1_000
        return self._steps > _STEPS


@lru_cache(maxsize=512)
def _sampled(path: str, identity: tuple[int, ...], table: Table) -> list[tuple]:
    """Up to so many rows of a table; of a large one from all over it."""
    with closing(connect_readonly(Path(path))) as connection:
        select = _select(table)
        try:
            rows = connection.execute(f"{select} LIMIT {_SAMPLE}").fetchall()
            if len(rows) == _SAMPLE and not table.without_rowid:
                last = connection.execute(
                    f"SELECT max(rowid) FROM {quote_identifier(table.name)}"
                ).fetchone()[0]
                rng = random.Random(last)
                ids = sorted({rng.randint(1, max(last, 1)) for _ in range(2 * _SAMPLE)})
                marks = ", ".join(map(str, ids))
                spread = connection.execute(f"{select} WHERE rowid IN ({marks})").fetchall()
                if len(spread) >= _SAMPLE // 2:
                    rows = (spread + rows)[:_SAMPLE]
        except sqlite3.Error:  # the file has no such table
            return []
    return rows


def _select(table: Table) -> str:
    names = ", ".join(quote_identifier(column.name) for column in table.stored)
    return f"SELECT {names} FROM {quote_identifier(table.name)}"
