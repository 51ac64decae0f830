"""Rows of a real database: those that queries speak of first, and with each its parents."""

import random
import sqlite3
from collections.abc import Iterable, Sequence

from jax_t2sql.equivalence.catalog import Catalog, Rows, Table
from jax_t2sql.equivalence.storing import convert
from jax_t2sql.sql.schema import fold, quote_identifier
from jax_t2sql.sql.tokens import significant

_MOST_READ = 50_000  # rows looked at in a table


def needed_tables(catalog: Catalog, names: Iterable[str]) -> list[Table]:
    """Tables of these (folded) names and all that they refer to, parents before children where
    foreign keys form no circle."""
    ordered: list[Table] = []
    wanted = set(names)

    def visit(name: str, path: tuple[str, ...]) -> None:
        table = catalog.table(name)
        if table is None or table in ordered or name in path:
            return
        for key in table.foreign_keys:
            visit(fold(key.other_table), (*path, name))
        ordered.append(table)

    for table in catalog.tables:
        if fold(table.name) in wanted:
            visit(fold(table.name), ())
    return ordered


def read_rows(
    connection: sqlite3.Connection,
    tables: Sequence[Table],
    statements: Sequence[str],
    *,
    most: int,
    rng: random.Random,
) -> Rows:
    """Rows of a database in which all references hold.

    Args:
      connection: of the database.
      tables: from `needed_tables`.
      statements: rows that hold a text or number of theirs come first.
      most: rows a table, parents of chosen rows not counted.
    """
    literals = _literals(statements)
    read: Rows = {}
    chosen: Rows = {}
    for table in tables:
        names = ", ".join(quote_identifier(column.name) for column in table.stored)
        query = f"SELECT {names} FROM {quote_identifier(table.name)} LIMIT {_MOST_READ}"
        rows = read[table.name] = connection.execute(query).fetchall()
        if len(rows) > most:
            spoken = [row for row in rows if not literals.isdisjoint(row)]
            rng.shuffle(spoken)
            kept = spoken[: most // 2]
            kept += rng.sample(rows, most - len(kept))
            rows = list(dict.fromkeys(kept)) if table.keys else kept
        chosen[table.name] = list(rows)
    for table in reversed(tables):  # children ask for their parents
        _add_parents(table, tables, read, chosen)
    return without_orphans(chosen, tables)


def _literals(statements: Sequence[str]) -> set[object]:
    found: set[object] = set()
    for statement in statements:
        for token in significant(statement):
            if token.kind in ("text", "double"):
                found.add(token.value)
            elif token.kind == "number" and token.text.isdigit() and int(token.text) > 1:
                found.add(int(token.text))
    return found


def _add_parents(table: Table, tables: Sequence[Table], read: Rows, chosen: Rows) -> None:
    by_name = {fold(other.name): other for other in tables}
    for key in table.foreign_keys:
        parent = by_name.get(fold(key.other_table))
        if parent is None:
            continue
        ours, theirs = _places(table, key.columns), _places(parent, key.other_columns)
        if ours is None or theirs is None:
            continue
        there = {_own_key(row, parent, theirs) for row in chosen[parent.name]}
        asked = {_key(row, ours, parent, theirs) for row in chosen[table.name]}
        missing = asked - there
        if missing:
            chosen[parent.name] += [
                row for row in read[parent.name] if _own_key(row, parent, theirs) in missing
            ]


def without_orphans(rows: Rows, tables: Sequence[Table]) -> Rows:
    """The rows whose references hold; what referred to a row that goes goes too."""
    rows = dict(rows)
    by_name = {fold(table.name): table for table in tables}
    changed = True
    while changed:
        changed = False
        for table in tables:
            for key in table.foreign_keys:
                parent = by_name.get(fold(key.other_table))
                ours = _places(table, key.columns)
                theirs = _places(parent, key.other_columns) if parent else None
                if parent is None or ours is None or theirs is None:
                    continue
                there = {_own_key(row, parent, theirs) for row in rows.get(parent.name, ())}
                kept = [
                    row
                    for row in rows.get(table.name, ())
                    if None in (own := _key(row, ours, parent, theirs)) or own in there
                ]
                if len(kept) < len(rows.get(table.name, ())):
                    rows[table.name], changed = kept, True
    return rows


def _key(row: tuple, ours: Sequence[int], parent: Table, theirs: Sequence[int]) -> tuple:
    """What a row refers to: SQLite converts it as the parent's columns would, and compares by their
    collations."""
    key = []
    for i, j in zip(ours, theirs, strict=True):
        column = parent.stored[j]
        value = convert(row[i], column.affinity)
        key.append(_collated(value, column.collation))
    return tuple(key)


def _own_key(row: tuple, table: Table, places: Sequence[int]) -> tuple:
    return _key(row, places, table, places)


def _collated(value: object, collation: str) -> object:
    if not isinstance(value, str) or collation == "BINARY":
        return value
    return fold(value) if collation == "NOCASE" else value.rstrip(" ")


def _places(table: Table, columns: Iterable[str]) -> list[int] | None:
    """Where columns stand in a row; None where one of them is generated."""
    places = [table.places.get(fold(name)) for name in columns]
    return None if None in places else places
