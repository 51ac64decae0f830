"""A schema with what is told about it: a comment beside each column, rows under each table.

Made from a database file here and from a DDL text in `ddl`; printed by `schema_text`, cut down to a
token budget by `schema_budget`. Pure data, so that one reading serves every question.
"""

import contextlib
import functools
import os
import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from jax_t2sql.errors import UserError
from jax_t2sql.sql import Schema, Table, quote_identifier, read_schema, sample_values
from jax_t2sql.sql.database import connect_readonly, file_identity
from jax_t2sql.sql.schema import fold
from jax_t2sql.text2sql.descriptions import find_descriptions, read_descriptions
from jax_t2sql.text2sql.values import show_value

_MAX_VALUE_CHARS = 60

ColumnKey = tuple[str, str]


def column_key(table: str, column: str) -> ColumnKey:
    """(table, column) by SQLite's rule for names: case of ASCII letters ignored."""
    return fold(table), fold(column)


@dataclass(frozen=True)
class SchemaDoc:
    """A schema and what is told about it.

    Attributes:
      schema: tables and columns that are shown.
      comments: one line a column, by `column_key`; columns without one are not in it.
      rows: first rows of a table as text, by table name; tables without rows are not in it.
      left_out: how many columns a table has that are not shown, by table name.
    """

    schema: Schema
    comments: Mapping[ColumnKey, str] = field(default_factory=dict)
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)

    def comment(self, table: str, column: str) -> str:
        """The column's comment, "" without one."""
        return self.comments.get(column_key(table, column), "")


def read_doc(
    path: str | os.PathLike,
    *,
    sample_values: int = 3,
    sample_rows: int = 0,
    descriptions: bool = True,
) -> SchemaDoc:
    """What is in a database file.

    The result is remembered until the file, or a file that describes it, changes.

    Args:
      path: the database file.
      sample_values: distinct values told of a column that has no description.
      sample_rows: first rows told of each table.
      descriptions: tell what the folder `database_description` beside the file says of a column
        (BIRD's layout: one CSV a table).

    Raises:
      UserError: the file is no readable database.
    """
    path = Path(path)
    files = tuple(find_descriptions(path)) if descriptions else ()
    identity = tuple(file_identity(file) for file in (path, *files))
    return _read(path, files, identity, sample_values, sample_rows)


@functools.lru_cache(maxsize=1024)
def _read(
    path: Path, files: tuple[Path, ...], _identity: tuple, values: int, rows: int
) -> SchemaDoc:
    schema = read_schema(path)
    described = read_descriptions(files)
    comments = {}
    for table in schema.tables:
        for column in table.columns:
            key = column_key(table.name, column.name)
            comment = described.get(key, "")
            if not comment and values:
                found = sample_values(path, table.name, column.name, values)
                comment = ", ".join(
                    show_value(value, max_chars=_MAX_VALUE_CHARS, quote=True)[0] for value in found
                )
            if comment:
                comments[key] = comment
    shown = {table.name: _first_rows(path, table, rows) for table in schema.tables} if rows else {}
    return SchemaDoc(schema, comments, {name: text for name, text in shown.items() if text})


def _first_rows(path: Path, table: Table, count: int) -> tuple[str, ...]:
    # Not *, which also gives the generated columns that the schema leaves out.
    columns = ", ".join(quote_identifier(column.name) for column in table.columns)
    query = f"SELECT {columns} FROM {quote_identifier(table.name)} LIMIT ?"
    with contextlib.closing(connect_readonly(path)) as connection:
        try:
            rows = connection.execute(query, (count,)).fetchall()
        except sqlite3.Error as error:
            raise UserError(f"{path}: rows of {table.name}: {error}") from None
    return tuple(
        " | ".join(show_value(value, max_chars=_MAX_VALUE_CHARS)[0] for value in row)
        for row in rows
    )


def select_columns(doc: SchemaDoc, kept: Collection[ColumnKey]) -> SchemaDoc:
    """The same with these columns alone; tables without any are gone.

    A foreign key stays where both its ends are kept. Rows are left out of tables that lose columns:
    their cells would stand under the wrong names.
    """
    kept = frozenset(kept)
    tables, left_out = [], {}
    for table in doc.schema.tables:
        columns = tuple(c for c in table.columns if column_key(table.name, c.name) in kept)
        if columns:
            tables.append(replace(table, columns=columns))
        if len(columns) < len(table.columns):
            left_out[table.name] = len(table.columns) - len(columns)
    names = {fold(table.name) for table in tables}

    def holds(table: Table, key) -> bool:
        return (
            all(column_key(table.name, column) in kept for column in key.columns)
            and fold(key.other_table) in names
            and all(column_key(key.other_table, column) in kept for column in key.other_columns)
        )

    tables = [
        replace(table, foreign_keys=tuple(key for key in table.foreign_keys if holds(table, key)))
        for table in tables
    ]
    rows = {name: text for name, text in doc.rows.items() if name not in left_out}
    return replace(doc, schema=Schema(tuple(tables)), rows=rows, left_out=left_out)
