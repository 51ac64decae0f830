"""A database's schema as SQL text for a prompt.

Printed anew from the tables found, not copied from the file: names are quoted where SQL needs it,
so that the text loads back into SQLite and gives the same names, and data stand in comments.
"""

import contextlib
import functools
import os
import re
import sqlite3
from pathlib import Path

from jax_t2sql.errors import UserError
from jax_t2sql.sql import Column, Table, quote_identifier, read_schema, sample_values
from jax_t2sql.sql.database import connect_readonly, file_identity
from jax_t2sql.text2sql.values import displayable, show_value

_MAX_VALUE_CHARS = 60
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# A declared type as SQLite reads it back: words, then perhaps one or two numbers.
_PLAIN_TYPE = re.compile(
    r"[A-Za-z_]\w*(?: +[A-Za-z_]\w*)*(?: *\( *[+-]?\w+ *(?:, *[+-]?\w+ *)?\))?\Z", re.ASCII
)
# https://www.sqlite.org/lang_keywords.html: some are allowed bare in places, none needs to be.
_KEYWORD_LIST = (
    "ABORT ACTION ADD AFTER ALL ALTER ALWAYS ANALYZE AND AS ASC ATTACH AUTOINCREMENT "
    "BEFORE BEGIN BETWEEN BY CASCADE CASE CAST CHECK COLLATE COLUMN COMMIT CONFLICT "
    "CONSTRAINT CREATE CROSS CURRENT CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP DATABASE "
    "DEFAULT DEFERRABLE DEFERRED DELETE DESC DETACH DISTINCT DO DROP EACH ELSE END ESCAPE "
    "EXCEPT EXCLUDE EXCLUSIVE EXISTS EXPLAIN FAIL FILTER FIRST FOLLOWING FOR FOREIGN FROM "
    "FULL GENERATED GLOB GROUP GROUPS HAVING IF IGNORE IMMEDIATE IN INDEX INDEXED "
    "INITIALLY INNER INSERT INSTEAD INTERSECT INTO IS ISNULL JOIN KEY LAST LEFT LIKE LIMIT "
    "MATCH MATERIALIZED NATURAL NO NOT NOTHING NOTNULL NULL NULLS OF OFFSET ON OR ORDER "
    "OTHERS OUTER OVER PARTITION PLAN PRAGMA PRECEDING PRIMARY QUERY RAISE RANGE RECURSIVE "
    "REFERENCES REGEXP REINDEX RELEASE RENAME REPLACE RESTRICT RETURNING RIGHT ROLLBACK "
    "ROW ROWS SAVEPOINT SELECT SET TABLE TEMP TEMPORARY THEN TIES TO TRANSACTION TRIGGER "
    "UNBOUNDED UNION UNIQUE UPDATE USING VACUUM VALUES VIEW VIRTUAL WHEN WHERE WINDOW WITH "
    "WITHIN WITHOUT "
)
_KEYWORDS = frozenset(_KEYWORD_LIST.split())


def schema_text(path: str | os.PathLike, *, sample_values: int = 3, sample_rows: int = 0) -> str:
    """CREATE TABLE statements of a database file, with stored values as comments.

    The text is remembered until the file changes.

    Args:
      path: the database file.
      sample_values: distinct values shown beside each column.
      sample_rows: first rows shown under each table, below the names of the columns.

    Raises:
      UserError: the file is no readable database.
    """
    return _print_schema(Path(path), file_identity(path), sample_values, sample_rows)


@functools.lru_cache(maxsize=1024)
def _print_schema(path: Path, _identity: tuple[int, ...], values: int, rows: int) -> str:
    statements = [_print_table(path, t, values, rows) for t in read_schema(path).tables]
    # A name of bytes that are no UTF-8 arrives with lone surrogates, which no tokenizer takes.
    return "\n\n".join(statements).encode("utf-8", "backslashreplace").decode()


def _print_table(path: Path, table: Table, values: int, rows: int) -> str:
    key = table.primary_key
    lines = []
    for column in table.columns:
        comment = ""
        if values:
            found = sample_values(path, table.name, column.name, values)
            comment = ", ".join(_literal(value) for value in found)
        lines.append((_define(column, inline_key=len(key) == 1), comment))
    if len(key) > 1:
        lines.append((f"PRIMARY KEY ({_names(key)})", ""))
    for foreign in table.foreign_keys:
        target = f" ({_names(foreign.other_columns)})" if foreign.other_columns else ""
        reference = f"REFERENCES {_name(foreign.other_table)}{target}"
        lines.append((f"FOREIGN KEY ({_names(foreign.columns)}) {reference}", ""))
    head = f"CREATE TABLE {_name(table.name)} ("
    text = [head + (" -- a view" if table.is_view else "")]
    for index, (definition, comment) in enumerate(lines, start=1):
        comma = "," if index < len(lines) else ""
        text.append(f"  {definition}{comma}" + (f" -- {comment}" if comment else ""))
    text.append(");")
    text += [f"-- {line}" for line in _first_rows(path, table, rows)]
    return "\n".join(text)


def _define(column: Column, *, inline_key: bool) -> str:
    words = [_name(column.name)]
    if column.type:
        plain = _PLAIN_TYPE.match(column.type) and not _keyword_in(column.type)
        words.append(column.type if plain else quote_identifier(column.type))
    if column.primary_key and inline_key:
        words.append("PRIMARY KEY")
    if column.not_null:
        words.append("NOT NULL")
    return " ".join(words)


def _first_rows(path: Path, table: Table, count: int) -> list[str]:
    """A query for the first rows, its column names and its rows; nothing for an empty table.

    The names stand above the values, so that no reader has to count positions.
    """
    if not count:
        return []
    # Not *, which also gives the generated columns that the statement above leaves out.
    columns = ", ".join(quote_identifier(column.name) for column in table.columns)
    query = f"SELECT {columns} FROM {quote_identifier(table.name)} LIMIT ?"
    with contextlib.closing(connect_readonly(path)) as connection:
        try:
            rows = connection.execute(query, (count,)).fetchall()
        except sqlite3.Error as error:
            raise UserError(f"{path}: rows of {table.name}: {error}") from None
    if not rows:
        return []
    shown = f"SELECT * FROM {_name(table.name)} LIMIT {count};"
    head = " | ".join(_name(column.name) for column in table.columns)
    cells = [" | ".join(_cell(value) for value in row) for row in rows]
    return [displayable(shown), displayable(head), *cells]


def _cell(value: object) -> str:
    return show_value(value, max_chars=_MAX_VALUE_CHARS)[0]


def _literal(value: object) -> str:
    return show_value(value, max_chars=_MAX_VALUE_CHARS, quote=True)[0]


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(_name(name) for name in names)


def _name(name: str) -> str:
    plain = _PLAIN_NAME.match(name) and name.upper() not in _KEYWORDS
    return name if plain else quote_identifier(name)


def _keyword_in(type_name: str) -> bool:
    return any(word in _KEYWORDS for word in re.split(r"\W+", type_name.upper()))
