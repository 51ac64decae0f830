"""A database's schema as SQL text for a prompt.

Printed anew from the tables found, not copied from the file: names are quoted where SQL needs it,
so that the text loads back into SQLite and gives the same names, and all else stands in comments.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from jax_t2sql.sql import Column, Table, quote_identifier
from jax_t2sql.text2sql.prompt_options import Dialect
from jax_t2sql.text2sql.schema_doc import SchemaDoc, read_doc
from jax_t2sql.text2sql.values import displayable

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


@dataclass(frozen=True)
class _Quoting:
    """How a dialect writes names of columns, and of tables."""

    column: Callable[[str], str]
    table: Callable[[str], str]


def schema_text(
    path: str | os.PathLike,
    *,
    sample_values: int = 3,
    sample_rows: int = 0,
    descriptions: bool = True,
) -> str:
    """CREATE TABLE statements of a database file, with what is known of a column as a comment.

    Args: as `schema_doc.read_doc`.

    Raises:
      UserError: the file is no readable database.
    """
    doc = read_doc(
        path, sample_values=sample_values, sample_rows=sample_rows, descriptions=descriptions
    )
    return print_schema(doc)


def print_schema(doc: SchemaDoc, *, dialect: Dialect = "sqlite") -> str:
    """CREATE TABLE statements that load into a database and give the same names.

    Args:
      doc: what to print.
      dialect: whose rules say which names need quotes. Snowflake reads bare names as upper case,
        and a name there may have parts, database.schema.table.
    """
    quoting = _QUOTING[dialect]
    return "\n\n".join(_print_table(doc, table, quoting) for table in doc.schema.tables)


def _print_table(doc: SchemaDoc, table: Table, quoting: _Quoting) -> str:
    key = table.primary_key
    lines = [
        (_define(column, quoting, inline_key=len(key) == 1), doc.comment(table.name, column.name))
        for column in table.columns
    ]
    if len(key) > 1:
        lines.append((f"PRIMARY KEY ({_names(key, quoting)})", ""))
    for foreign in table.foreign_keys:
        target = f" ({_names(foreign.other_columns, quoting)})" if foreign.other_columns else ""
        reference = f"REFERENCES {quoting.table(foreign.other_table)}{target}"
        lines.append((f"FOREIGN KEY ({_names(foreign.columns, quoting)}) {reference}", ""))
    notes = ["a view"] if table.is_view else []
    if table.name in doc.left_out:
        whole = len(table.columns) + doc.left_out[table.name]
        notes.append(f"{len(table.columns)} of {whole} columns shown")
    head = f"CREATE TABLE {quoting.table(table.name)} ("
    text = [head + (f" -- {', '.join(notes)}" if notes else "")]
    for index, (definition, comment) in enumerate(lines, start=1):
        comma = "," if index < len(lines) else ""
        text.append(f"  {definition}{comma}" + (f" -- {comment}" if comment else ""))
    text.append(");")
    text += [f"-- {line}" for line in _first_rows(doc, table, quoting)]
    # A name of bytes that are no UTF-8 arrives with lone surrogates, which no tokenizer takes.
    return "\n".join(text).encode("utf-8", "backslashreplace").decode()


def _first_rows(doc: SchemaDoc, table: Table, quoting: _Quoting) -> list[str]:
    """A query for the first rows, its column names and its rows; nothing without rows.

    The names stand above the values, so that no reader has to count positions.
    """
    rows = doc.rows.get(table.name)
    if not rows:
        return []
    shown = f"SELECT * FROM {quoting.table(table.name)} LIMIT {len(rows)};"
    head = " | ".join(quoting.column(column.name) for column in table.columns)
    return [displayable(shown), displayable(head), *rows]


def _define(column: Column, quoting: _Quoting, *, inline_key: bool) -> str:
    words = [quoting.column(column.name)]
    if column.type:
        plain = _PLAIN_TYPE.match(column.type) and not _keyword_in(column.type)
        words.append(column.type if plain else quote_identifier(column.type))
    if column.primary_key and inline_key:
        words.append("PRIMARY KEY")
    if column.not_null:
        words.append("NOT NULL")
    return " ".join(words)


def _names(names: tuple[str, ...], quoting: _Quoting) -> str:
    return ", ".join(map(quoting.column, names))


def _name(name: str) -> str:
    plain = _PLAIN_NAME.match(name) and name.upper() not in _KEYWORDS
    return name if plain else quote_identifier(name)


def _snowflake_name(name: str) -> str:
    plain = _name(name) == name and name == name.upper()
    return name if plain else quote_identifier(name)


def _snowflake_table(name: str) -> str:
    return ".".join(map(_snowflake_name, name.split(".")))


_QUOTING: dict[Dialect, _Quoting] = {
    "sqlite": _Quoting(_name, _name),
    "snowflake": _Quoting(_snowflake_name, _snowflake_table),
}


def _keyword_in(type_name: str) -> bool:
    return any(word in _KEYWORDS for word in re.split(r"\W+", type_name.upper()))
