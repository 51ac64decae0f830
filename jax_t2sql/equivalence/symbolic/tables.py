"""Unknown stored tables of at most so many rows, and what the schema asks of them.

Columns hold what SQLite would store in them: a column of INTEGER affinity may hold a text, but an
integral number in it is an INTEGER. Of the constraints, CHECKs, generated columns and foreign keys
between columns of different kinds are not asked for: more databases are looked at, never fewer.
"""

from collections.abc import Iterable

from jax_t2sql.equivalence.catalog import Catalog, Column, Table
from jax_t2sql.equivalence.symbolic.comparing import NUMERIC
from jax_t2sql.equivalence.symbolic.context import Row
from jax_t2sql.equivalence.symbolic.opaque import NUMERIC_AFFINITY, SUMMAND, apply, fractional
from jax_t2sql.equivalence.symbolic.terms import Term, Terms
from jax_t2sql.equivalence.symbolic.values import (
    ANYTHING,
    BLOB_HIGH,
    INTEGERS,
    NUMBERS,
    TEXT_LOW,
    TEXTS,
    Val,
    is_small,
)
from jax_t2sql.sql.schema import fold

Tables = dict[str, list[Row]]


def unknown_tables(t: Terms, catalog: Catalog, names: Iterable[str], bound: int) -> Tables:
    """The named tables (folded), each with up to `bound` rows."""
    tables: Tables = {}
    for name in names:
        table = catalog.table(name)
        rows = []
        for i in range(bound):
            present = t.var(f"{name}[{i}]", numeric=False)
            cells = tuple(_cell(t, table, c, f"{name}[{i}].{fold(c.name)}") for c in table.columns)
            rows.append(Row(present, cells))
        tables[name] = rows
    return tables


def _cell(t: Terms, table: Table, column: Column, name: str) -> Val:
    row_id = table.row_id is not None and fold(table.row_id) == fold(column.name)
    null = t.false if column.not_null or row_id else t.var(f"{name}?", numeric=False)
    if row_id:
        return Val(null, t.var(name, numeric=True, bounds=INTEGERS, whole=True), t.false)
    if column.affinity == "TEXT":
        return Val(null, t.var(name, numeric=True, bounds=(TEXT_LOW, BLOB_HIGH)), t.false)
    key = t.var(name, numeric=True, bounds=ANYTHING)
    number = t.lt(key, t.number(TEXT_LOW))
    if column.affinity == "REAL":
        return Val(null, key, number)
    if column.affinity == "BLOB":
        return Val(null, key, t.and_(number, t.var(f"{name}!", numeric=False)))
    return Val(null, key, fractional(t, key))


def small_numbers(t: Terms, tables: Tables) -> list[Term]:
    """That no number is larger than LARGE: then INTEGERs become REALs, and add up, exactly."""
    cells = [cell for rows in tables.values() for row in rows for cell in row.cells]
    return [
        t.or_(cell.null, t.le(t.number(TEXT_LOW), cell.key), is_small(t, cell.key))
        for cell in cells
    ]


def constraints(t: Terms, catalog: Catalog, tables: Tables) -> list[Term]:
    """What holds in every database of the schema."""
    result: list[Term] = []
    for name, rows in tables.items():
        table = catalog.table(name)
        # Which row is called the first does not matter.
        result += [
            t.implies(later.present, row.present)
            for row, later in zip(rows, rows[1:], strict=False)
        ]
        for row in rows:
            for cell, column in zip(row.cells, table.columns, strict=True):
                result.append(_within(t, cell, column))
                if column.affinity in NUMERIC:
                    result += _no_number_in_words(t, cell)
        for key in table.keys:
            result += _unique(t, table, key.columns, rows)
        for foreign in table.foreign_keys:
            result += _refers(t, catalog, tables, table, foreign, rows)
    return result


def ordinary(t: Terms, catalog: Catalog, tables: Tables) -> list[Term]:
    """That values are of the kind that their columns are made for."""
    result = []
    for name, rows in tables.items():
        for row in rows:
            for cell, column in zip(row.cells, catalog.table(name).columns, strict=True):
                low, high = _ORDINARY[column.affinity]
                result.append(t.or_(cell.null, t.within(cell.key, low, high)))
                if column.affinity == "INTEGER":
                    result.append(t.or_(cell.null, t.not_(cell.real)))
    return result


_ORDINARY = {
    "INTEGER": (-(10**6), 10**6),
    "REAL": (-(10**6), 10**6),
    "NUMERIC": (-(10**6), 10**6),
    "TEXT": TEXTS,
    "BLOB": (-(10**6), TEXTS[1]),
}


def _within(t: Terms, cell: Val, column: Column) -> Term:
    """The key lies where it can; a fractional number is a number."""
    low, high = cell.key.bounds
    # Bounded by hand: `le` knows the bounds already and would find nothing to ask.
    inside = t.within(cell.key, low, high)
    if column.affinity in ("INTEGER", "NUMERIC") and not cell.real.is_const:
        inside = t.and_(inside, t.implies(cell.real, t.lt(cell.key, t.number(TEXT_LOW))))
    return inside


def _no_number_in_words(t: Terms, cell: Val) -> list[Term]:
    """A text that a column of numeric affinity has stored spells no number."""
    number = t.or_(cell.null, t.lt(cell.key, t.number(TEXT_LOW)))
    result = []
    if f"key:{NUMERIC_AFFINITY}" in t.functions:
        again = apply(t, NUMERIC_AFFINITY, [cell])
        kept = t.and_(t.not_(again.null), t.eq(again.key, cell.key), t.eq(again.real, cell.real))
        result.append(t.or_(number, kept))
    if f"key:{SUMMAND}" in t.functions:
        result.append(t.or_(number, apply(t, SUMMAND, [cell], bounds=NUMBERS).real))
    return result


def _unique(t: Terms, table: Table, names: tuple[str, ...], rows: list[Row]) -> list[Term]:
    """Uniqueness byte by byte, which any collation of the index implies."""
    places = [_place(table, name) for name in names]
    result = []
    for i, row in enumerate(rows):
        for other in rows[:i]:
            equal = []
            for a, b in ((row.cells[place], other.cells[place]) for place in places):
                equal.append(t.and_(t.not_(a.null), t.not_(b.null), t.eq(a.key, b.key)))
            result.append(t.not_(t.and_(row.present, other.present, *equal)))
    return result


def _refers(
    t: Terms, catalog: Catalog, tables: Tables, table: Table, foreign, rows: list[Row]
) -> list[Term]:
    other = catalog.table(foreign.other_table)
    parents = tables.get(fold(foreign.other_table))
    if other is None or parents is None:
        return []
    here = [_place(table, name) for name in foreign.columns]
    there = [_place(other, name) for name in foreign.other_columns]
    for a, b in zip(here, there, strict=True):
        mine, its = table.columns[a], other.columns[b]
        if mine.affinity != its.affinity or its.collation != "BINARY":
            return []
    result = []
    for row in rows:
        null = t.or_(*(row.cells[a].null for a in here))
        found = []
        for parent in parents:
            equal = [
                t.and_(t.not_(parent.cells[b].null), t.eq(row.cells[a].key, parent.cells[b].key))
                for a, b in zip(here, there, strict=True)
            ]
            found.append(t.and_(parent.present, *equal))
        result.append(t.or_(t.not_(row.present), null, *found))
    return result


def _place(table: Table, name: str) -> int:
    return next(i for i, c in enumerate(table.columns) if fold(c.name) == fold(name))
