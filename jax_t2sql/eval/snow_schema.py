"""Schemas of Spider 2.0-Snow from the files that come with it.

DATABASE/SCHEMA/DDL.csv       table_name, description, DDL: one CREATE TABLE a row
DATABASE/SCHEMA/TABLE.json    column_names, description, sample_rows
"""

import contextlib
import csv
import functools
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from jax_t2sql.errors import UserError
from jax_t2sql.sql import Schema, Table
from jax_t2sql.text2sql.ddl import read_ddl
from jax_t2sql.text2sql.schema_doc import ColumnKey, SchemaDoc, column_key
from jax_t2sql.text2sql.values import displayable

_EXAMPLES, _MAX_CHARS = 2, 60  # values told of a column


def find_snow_database(databases: Path, db_id: str) -> Path:
    """The folder that describes a database. Raises UserError if there is none."""
    folder = databases / db_id
    if set(db_id) & {"/", "\\", "\0"} or not any(folder.glob("*/DDL.csv")):
        raise UserError(f"database {db_id!r}: {folder} holds no SCHEMA/DDL.csv; get the folder")
    return folder


@functools.lru_cache(maxsize=256)
def read_snow_doc(folder: Path) -> SchemaDoc:
    """The schema of one database, tables named DATABASE.SCHEMA.TABLE.

    Raises:
      UserError: a file is broken, or no table is described.
    """
    tables: list[Table] = []
    comments: dict[ColumnKey, str] = {}
    for path in sorted(folder.glob("*/DDL.csv")):
        for ddl in _statements(path):
            with contextlib.suppress(UserError):  # a row without a table with columns
                for table in read_ddl(ddl).schema.tables:
                    name = f"{folder.name}.{path.parent.name}.{table.name.rpartition('.')[2]}"
                    tables.append(replace(table, name=name, foreign_keys=()))
                    comments |= _comments(path.parent, tables[-1])
    if not tables:
        raise UserError(f"{folder}: no DDL.csv in it describes a table")
    return SchemaDoc(Schema(tuple(tables)), comments)


def snow_names(doc: SchemaDoc) -> dict[str, str]:
    """How the database spells its names, by the name in lower case; ambiguous ones are left out."""
    spellings: dict[str, set[str]] = {}
    for table in doc.schema.tables:
        for name in (*table.name.split("."), *(column.name for column in table.columns)):
            spellings.setdefault(name.lower(), set()).add(name)
    return {low: next(iter(found)) for low, found in spellings.items() if len(found) == 1}


def _statements(path: Path) -> Iterator[str]:
    try:
        rows = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig", errors="replace")))
        for row in rows:
            ddl = row.get("DDL") or row.get("ddl")
            if ddl:
                yield ddl
    except (OSError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read ({error}); get the file again") from None


def _comments(folder: Path, table: Table) -> dict[ColumnKey, str]:
    """Descriptions and examples of a table's columns, where its JSON file tells them."""
    path = folder / f"{table.name.rpartition('.')[2]}.json"
    try:
        told = json.loads(path.read_text(encoding="utf-8", errors="replace"))
        names = [str(name) for name in told["column_names"]]
        texts = list(told.get("description") or ()) + [None] * len(names)
        rows = [row for row in told.get("sample_rows") or () if isinstance(row, dict)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}  # the columns are known without it
    found = {}
    for name, text in zip(names, texts, strict=False):
        values = list(dict.fromkeys(_short(row[name]) for row in rows if row.get(name) is not None))
        parts = [_short(text)] if text else []
        if values:
            parts.append(f"e.g. {', '.join(values[:_EXAMPLES])}")
        if parts:
            found[column_key(table.name, name)] = "; ".join(parts)
    return found


def _short(value: Any) -> str:
    text = displayable(" ".join(str(value).split()))
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 1] + "…"
