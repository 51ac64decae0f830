"""Columns, keys and tables, with the types that SQLite gives them."""

import functools
from dataclasses import dataclass
from typing import Literal

from jax_t2sql.sql.schema import fold

Affinity = Literal["INTEGER", "TEXT", "BLOB", "REAL", "NUMERIC"]


def affinity_of(declared: str, *, strict: bool = False) -> Affinity:
    """The affinity of a declared type, https://www.sqlite.org/datatype3.html section 3.1."""
    upper = declared.upper()
    if strict and upper == "ANY":
        return "BLOB"
    if "INT" in upper:
        return "INTEGER"
    if any(word in upper for word in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if "BLOB" in upper or not upper:
        return "BLOB"
    return "REAL" if any(word in upper for word in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
      name: as declared; SQLite ignores case in names.
      type: the declared type, "" if none.
      affinity: what SQLite makes of the type, https://www.sqlite.org/datatype3.html.
      not_null: whether NULL is refused; also for an INTEGER PRIMARY KEY that is the row id.
      default: SQL text of the default, or None.
      generated: whether it is computed, so that no value can be stored in it.
      collation: "BINARY", "NOCASE", "RTRIM".
    """

    name: str
    type: str
    affinity: Affinity
    not_null: bool = False
    default: str | None = None
    generated: bool = False
    collation: str = "BINARY"


@dataclass(frozen=True)
class Key:
    """Columns that are unique together; NULLs are never equal here, as SQLite has it."""

    columns: tuple[str, ...]
    primary: bool = False


@dataclass(frozen=True)
class ForeignKey:
    """Columns of a table that refer to columns of another, pairwise; free where one is NULL."""

    columns: tuple[str, ...]
    other_table: str
    other_columns: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
      row_id: the column that is the row id (INTEGER PRIMARY KEY), None without one.
      checks: conditions of the CHECKs, as written.
      strict: declared STRICT, so that types are enforced.
    """

    name: str
    columns: tuple[Column, ...]
    keys: tuple[Key, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    checks: tuple[str, ...] = ()
    without_rowid: bool = False
    strict: bool = False
    row_id: str | None = None

    @functools.cached_property
    def stored(self) -> tuple[Column, ...]:
        """The columns that a row of `Rows` has."""
        return tuple(column for column in self.columns if not column.generated)

    @functools.cached_property
    def places(self) -> dict[str, int]:
        """Folded names of the stored columns, and their places in a row."""
        return {fold(column.name): i for i, column in enumerate(self.stored)}

    def column(self, name: str) -> Column | None:
        """The column of that name, case of ASCII letters ignored."""
        return next((c for c in self.columns if fold(c.name) == fold(name)), None)
