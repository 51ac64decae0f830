"""What is in a database: tables, columns, keys, and a few stored values."""

import contextlib
import os
import sqlite3
from dataclasses import dataclass

from jax_t2sql.errors import UserError
from jax_t2sql.sql.database import connect_readonly


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
      name: as declared; SQLite ignores case in names.
      type: the declared type, "" if none.
      not_null: declared NOT NULL.
      default: SQL text of the default, or None.
      primary_key: 1-based place in the primary key, 0 outside it.
    """

    name: str
    type: str
    not_null: bool = False
    default: str | None = None
    primary_key: int = 0


@dataclass(frozen=True)
class ForeignKey:
    """Columns of a table that refer to columns of another, pairwise.

    `other_columns` is empty where the key names none and the other table has no primary key of that
    width: then nothing says what is referred to.
    """

    columns: tuple[str, ...]
    other_table: str
    other_columns: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """One table, or one view where `is_view` is set."""

    name: str
    columns: tuple[Column, ...]
    foreign_keys: tuple[ForeignKey, ...] = ()
    is_view: bool = False

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Names of the key's columns, in the key's order."""
        keyed = sorted((c for c in self.columns if c.primary_key), key=lambda c: c.primary_key)
        return tuple(column.name for column in keyed)

    def column(self, name: str) -> Column | None:
        """The column of that name, by SQLite's rule: case of ASCII letters ignored."""
        return next((c for c in self.columns if fold(c.name) == fold(name)), None)


@dataclass(frozen=True)
class Schema:
    """Tables in the order of their creation, then views."""

    tables: tuple[Table, ...]

    def table(self, name: str) -> Table | None:
        """The table or view of that name, case of ASCII letters ignored."""
        return next((t for t in self.tables if fold(t.name) == fold(name)), None)


def fold(name: str) -> str:
    """A name as SQLite compares names: A–Z lowered, other letters left as they are."""
    return name.lower() if name.isascii() else name.translate(_FOLD)


_FOLD = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def quote_identifier(name: str) -> str:
    """The name between double quotes, as SQL reads it back whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


def read_schema(path: str | os.PathLike) -> Schema:
    """Reads tables, columns and keys of a database file.

    SQLite's own tables (`sqlite_…`) are left out. So is what no query could use: a view that no
    longer compiles, a table whose name is not UTF-8.

    Raises:
      UserError: the file is no readable database.
    """
    import sqlite_utils  # 0.1 s: only where a schema is read

    with contextlib.closing(connect_readonly(path)) as connection:
        database = sqlite_utils.Database(connection, execute_plugins=False)
        try:
            names = [
                name
                for name in database.table_names()
                if not fold(name).startswith("sqlite_") and _is_utf8(name)
            ]
            tables = [
                Table(
                    name=name,
                    columns=_columns(database.table(name)),
                    foreign_keys=tuple(map(_foreign_key, database.table(name).foreign_keys)),
                )
                for name in names
            ]
            for name in database.view_names():
                with contextlib.suppress(sqlite3.OperationalError, UnicodeEncodeError):
                    columns = _columns(database.view(name))
                    tables.append(Table(name=name, columns=columns, is_view=True))
        except sqlite3.Error as error:
            raise UserError(f"{path}: its schema cannot be read: {error}") from None
    return Schema(tuple(tables))


def _columns(table) -> tuple[Column, ...]:
    return tuple(
        Column(
            name=column.name,
            type=column.type,
            not_null=bool(column.notnull),
            default=column.default_value,
            primary_key=column.is_pk,
        )
        for column in table.columns
    )


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _foreign_key(key) -> ForeignKey:
    # sqlite-utils' "rowid" says that the other table has no primary key, or is none.
    named = tuple(column for column in key.other_columns if column not in (None, "rowid"))
    return ForeignKey(key.columns, key.other_table, named)


def sample_values(
    path: str | os.PathLike, table: str, column: str, k: int = 3, *, max_scan: int = 10_000
) -> tuple[object, ...]:
    """Up to k distinct values of a column, NULL left out, the first ones in storage order.

    Args:
      path: the database file.
      table: a table or view; column: one of its columns. Case is ignored.
      k: how many values.
      max_scan: at most so many values are looked at, so that a column of a million equal flags
        costs no full scan.

    Raises:
      UserError: no such table or column.
    """
    with contextlib.closing(connect_readonly(path)) as connection:
        name, source = quote_identifier(column), quote_identifier(table)
        # The qualified name: a bare "name" that is no column would be read as a text.
        query = (
            f"SELECT DISTINCT v FROM (SELECT {source}.{name} AS v FROM {source}"
            f" WHERE {source}.{name} IS NOT NULL LIMIT ?) LIMIT ?"
        )
        try:
            return tuple(value for (value,) in connection.execute(query, (max_scan, k)))
        except sqlite3.Error as error:
            raise UserError(f"{path}: values of {table}.{column}: {error}") from None
