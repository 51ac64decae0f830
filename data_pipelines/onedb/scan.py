"""A database as the generator sees it: tables, columns by kind, keys and how tables join."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from data_pipelines.onedb.columns import MOST_CATEGORIES, Column, judge, unit_of
from data_pipelines.onedb.joins import Edge, declared_edges, inferred_edges
from data_pipelines.onedb.labels import find_label
from data_pipelines.onedb.words import split_name
from jax_t2sql.errors import UserError
from jax_t2sql.sql import Limits, Sandbox, quote_identifier, read_schema
from jax_t2sql.sql import Table as StoredTable
from jax_t2sql.sql.schema import fold

_SAMPLE = 500
_LOOKS_UNIQUE = 20
Run = Callable[[str], list[tuple]]


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table.

    Attributes:
      primary_key: names of its columns, () without one.
      label: columns that name a row to a person: one, or first and last name; the key without any.
      label_unique: no two rows have the same label.
    """

    name: str
    rows: int
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    label: tuple[str, ...]
    label_unique: bool

    def column(self, name: str) -> Column:
        """The column of that name; raises KeyError."""
        for column in self.columns:
            if fold(column.name) == fold(name):
                return column
        raise KeyError(f"{self.name}.{name}")

    def of_kind(self, *kinds: str) -> list[Column]:
        """Columns of these kinds, in table order."""
        return [column for column in self.columns if column.kind in kinds]

    @property
    def identity(self) -> str | None:
        """The one column that tells rows apart, None where it takes several or none does."""
        return self.primary_key[0] if len(self.primary_key) == 1 else None

    @property
    def named(self) -> bool:
        """Whether a person would know a row by its label."""
        return any(self.column(name).kind == "name" for name in self.label)


@dataclass(frozen=True)
class Scan:
    """A database: its tables and the edges between them.

    Attributes:
      db_id: the file's name without its ending.
      edges: foreign keys, declared and inferred.
      skipped: what is left out, with the reason.
    """

    db_id: str
    path: Path
    tables: tuple[Table, ...]
    edges: tuple[Edge, ...]
    skipped: tuple[str, ...] = ()

    def table(self, name: str) -> Table:
        """The table of that name; raises KeyError."""
        for table in self.tables:
            if fold(table.name) == fold(name):
                return table
        raise KeyError(name)

    def column(self, table: str, name: str) -> Column:
        return self.table(table).column(name)

    def live_edges(self) -> list[Edge]:
        """Edges along which some row really has a partner."""
        return [edge for edge in self.edges if edge.matched > 0]


def scan_database(path: str | os.PathLike, *, seconds: float = 30.0) -> Scan:
    """Reads a database file: every column is looked at in full.

    Args:
      seconds: limit of each look; a column that takes longer is left out.

    Raises:
      UserError: the file is no readable database, or holds no table with columns.
    """
    path = Path(path)
    schema = read_schema(path)
    skipped: list[str] = []
    with Sandbox(path, limits=Limits(seconds=seconds)) as sandbox:

        def run(sql: str) -> list[tuple]:
            outcome = sandbox.execute(sql, warn=False)
            if not outcome.ok:
                raise LookupError(outcome.message)
            return list(outcome.rows)

        edges = declared_edges(schema, run, skipped)
        keys = {(fold(e.child), fold(c)) for e in edges for c in e.child_columns}
        tables = []
        for stored in schema.tables:
            if stored.is_view:
                skipped.append(f"{stored.name}: a view")
                continue
            tables.append(_table(stored, keys, run, skipped))
        edges += inferred_edges(tables, edges, run)
        tables = [_without_references(table, tables, run) for table in tables]
    if not tables:
        raise UserError(f"{path}: holds no table; give a database with data")
    guessed = {(fold(e.child), fold(c)) for e in edges for c in e.child_columns}
    tables = [_with_keys(table, guessed) for table in tables]
    return Scan(path.stem, path, tuple(tables), tuple(edges), tuple(skipped))


def _table(stored: StoredTable, keys: set[tuple[str, str]], run: Run, skipped: list[str]) -> Table:
    name = quote_identifier(stored.name)
    try:
        rows = run(f"SELECT COUNT(*) FROM {name}")[0][0]
    except LookupError as error:
        skipped.append(f"{stored.name}: cannot be read ({error})")
        rows = 0
    columns = []
    for column in stored.columns:
        primary = stored.primary_key == (column.name,)
        is_key = primary or (fold(stored.name), fold(column.name)) in keys
        try:
            columns.append(_column(stored.name, column, is_key, rows, run))
        except LookupError as error:
            skipped.append(f"{stored.name}.{column.name}: cannot be read ({error})")
    label, unique = find_label(stored, columns, rows)
    columns = [
        replace(c, kind="name") if c.name in label and c.kind in ("text", "category") else c
        for c in columns
    ]
    primary = stored.primary_key or _unique_column(columns, rows)
    return Table(
        name=stored.name,
        rows=rows,
        columns=tuple(columns),
        primary_key=primary,
        label=label or primary,
        label_unique=unique,
    )


def _column(table: str, column, is_key: bool, rows: int, run: Run) -> Column:
    ref, source = quote_identifier(column.name), quote_identifier(table)
    ref = f"{source}.{ref}"
    counted, distinct, low, high = run(
        f"SELECT COUNT({ref}), COUNT(DISTINCT {ref}), MIN({ref}), MAX({ref}) FROM {source}"
    )[0]
    types = frozenset(
        kind for (kind,) in run(f"SELECT DISTINCT typeof({ref}) FROM {source}") if kind != "null"
    )
    types = frozenset("number" if kind in ("integer", "real") else kind for kind in types)
    values = run(
        f"SELECT {ref}, COUNT(*) FROM {source} WHERE {ref} IS NOT NULL GROUP BY {ref}"
        f" ORDER BY COUNT(*) DESC, {ref} LIMIT {MOST_CATEGORIES}"
    )
    spread = max(1, counted // _SAMPLE)
    sample = [v for (v,) in run(f"SELECT {ref} FROM {source} WHERE {ref} IS NOT NULL")][::spread]
    kind, date_format, notes = judge(
        name=column.name,
        is_key=is_key,
        rows=rows,
        nulls=rows - counted,
        distinct=distinct,
        types=types,
        values=values,
        sample=sample,
        low=low,
    )
    return Column(
        table=table,
        name=column.name,
        declared=column.type,
        kind=kind,
        rows=rows,
        nulls=rows - counted,
        distinct=distinct,
        low=low,
        high=high,
        values=tuple(values),
        date_format=date_format,
        unit=unit_of(column.name) if kind == "number" else "",
        integer=all(isinstance(v, int) or float(v).is_integer() for v in sample)
        if types == {"number"}
        else False,
        notes=notes,
    )


def _without_references(table: Table, tables: list[Table], run: Run) -> Table:
    """Numbers that are keys of another table by all appearance, whatever they are called.

    A country's "capital" that holds the numbers of cities: no average of it means anything.
    """
    columns = []
    for column in table.columns:
        doubtful = column.kind == "number" and column.integer and not column.additive
        unique = column.distinct == column.rows - column.nulls >= _LOOKS_UNIQUE
        if doubtful and unique and not column.unit:
            parent = next((t for t in tables if _holds(t, table, column, run)), None)
            if parent is not None:
                note = f"looks like a reference to {parent.name}.{parent.identity}"
                column = replace(column, kind="key", notes=(*column.notes, note))
        columns.append(column)
    return replace(table, columns=tuple(columns))


def _holds(parent: Table, child: Table, column: Column, run: Run) -> bool:
    """Whether all values of a column are among the keys of a larger table."""
    if parent.identity is None or parent is child or parent.rows <= column.distinct:
        return False
    key = parent.column(parent.identity)
    if not isinstance(key.low, int) or column.low < key.low or column.high > key.high:
        return False
    missing = run(
        f"SELECT EXISTS (SELECT 1 FROM {quote_identifier(child.name)} AS c WHERE"
        f" c.{quote_identifier(column.name)} IS NOT NULL AND c.{quote_identifier(column.name)}"
        f" NOT IN (SELECT {quote_identifier(key.name)} FROM {quote_identifier(parent.name)}))"
    )
    return not missing[0][0]


def _unique_column(columns: list[Column], rows: int) -> tuple[str, ...]:
    """A column that serves as a key where none is declared."""
    for column in columns:
        words = split_name(column.name)
        if column.distinct == rows and rows > 1 and not column.nulls and words[-1] in ("id", "key"):
            return (column.name,)
    return ()


def _with_keys(table: Table, keys: set[tuple[str, str]]) -> Table:
    """Columns that an inferred edge made keys are no numbers or categories any more."""
    columns = tuple(
        replace(c, kind="key")
        if (fold(table.name), fold(c.name)) in keys and c.kind != "name"
        else c
        for c in table.columns
    )
    return replace(table, columns=columns)
