"""What a schema allows to be stored: columns as SQLite types them, keys, foreign keys, CHECKs.

SQLite itself reads the DDL, in memory, and its pragmas tell what it has understood: a declaration
that SQLite ignores constrains nothing here either.
"""

import functools
import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from jax_t2sql.equivalence.columns import (
    Column,
    ForeignKey,
    Key,
    Table,
    affinity_of,
)
from jax_t2sql.equivalence.ddl import checks, without_foreign_keys
from jax_t2sql.errors import UserError
from jax_t2sql.sql.database import connect_readonly
from jax_t2sql.sql.schema import fold, quote_identifier
from jax_t2sql.sql.tokens import significant, split_statement

# Rows of a database by table name as declared: tuples of all columns that are not generated, in
# their order. The one form in which generators, solver and replay hand databases around.
Rows = dict[str, list[tuple]]


@dataclass(frozen=True)
class Catalog:
    """A schema.

    Attributes:
      tables: in the order of their creation.
      ddl: a script that creates the empty database, without the foreign keys that are ignored.
      ignored: a sentence for each declared foreign key that SQLite cannot check.
    """

    tables: tuple[Table, ...]
    ddl: str
    ignored: tuple[str, ...] = ()

    def table(self, name: str) -> Table | None:
        """The table of that name, case of ASCII letters ignored."""
        return self._by_name.get(fold(name))

    @functools.cached_property
    def _by_name(self) -> dict[str, Table]:
        return {fold(table.name): table for table in self.tables}


def read_catalog(source: str | os.PathLike) -> Catalog:
    """Reads a schema.

    Args:
      source: DDL text, or the path of a database file. A string is DDL if it holds the word CREATE.
        Statements that create, alter or drop nothing (INSERT, PRAGMA, BEGIN) are passed over.

    Raises:
      UserError: the file cannot be read, or a statement does not load; names it, and says what
        SQLite says.
    """
    if isinstance(source, str) and any(t.is_word("CREATE") for t in significant(source)):
        return _from_ddl(source)
    with closing(connect_readonly(source)) as connection:
        try:
            statements = [*_tables(connection).values(), *_indexes_and_views(connection)]
            return _from_ddl(";\n".join(statements))
        except sqlite3.Error as error:
            raise UserError(f"{Path(source)}: its schema cannot be read: {error}") from None


@functools.lru_cache(maxsize=256)
def _from_ddl(text: str) -> Catalog:
    with closing(_created(_statements(text))) as connection:
        catalog = _read(connection)
    if not catalog.tables:
        raise UserError("the schema creates no table; give CREATE TABLE statements")
    return catalog


def _statements(text: str) -> Iterable[str]:
    while True:
        statement, text = split_statement(text)
        if not statement:
            return
        words = [token.text.upper() for token in significant(statement)[:3]]
        # Triggers fire on writing, and nobody writes. What their bodies hold after a semicolon
        # begins with other words than these.
        if words[0] in ("CREATE", "ALTER", "DROP") and "TRIGGER" not in words:
            yield statement


def _created(statements: Iterable[str]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.set_authorizer(_creating_alone)
    for statement in statements:
        try:
            connection.execute(statement)
        except (sqlite3.Error, UnicodeEncodeError) as error:
            connection.close()
            shown = statement if len(statement) <= 200 else statement[:200] + "…"
            raise UserError(
                f"the schema does not load: {error}, in {shown!r}; correct the statement"
            ) from None
    connection.set_authorizer(None)
    return connection


def _creating_alone(action: int, first, second, database, source) -> int:
    refused = (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_CREATE_VTABLE)
    return sqlite3.SQLITE_DENY if action in refused else sqlite3.SQLITE_OK


_OURS = "name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND sql NOT LIKE 'CREATE VIRTUAL%'"


def _tables(connection: sqlite3.Connection) -> dict[str, str]:
    """The tables' names and statements. Virtual tables and SQLite's own are left out."""
    query = f"SELECT name, sql FROM sqlite_master WHERE type = 'table' AND {_OURS} ORDER BY rowid"
    return dict(connection.execute(query))


def _indexes_and_views(connection: sqlite3.Connection) -> list[str]:
    query = (
        f"SELECT sql FROM sqlite_master WHERE type IN ('index', 'view') AND {_OURS}"
        " ORDER BY type, rowid"
    )
    return [sql for (sql,) in connection.execute(query)]


def _read(connection: sqlite3.Connection) -> Catalog:
    made = _tables(connection)
    flags = {row[1]: row[4:6] for row in connection.execute("PRAGMA main.table_list")}
    tables = {fold(name): _table(connection, name, made[name], *flags[name]) for name in made}
    ignored: list[str] = []
    complete, statements = [], []
    for name, sql in made.items():
        kept, unwanted = [], set()
        for key in _foreign_keys(connection, name):
            resolved, fault = _resolved(key, tables)
            if resolved is not None:
                kept.append(resolved)
                continue
            unwanted.add((tuple(map(fold, key.columns)), fold(key.other_table)))
            ignored.append(f"foreign key {name}({', '.join(key.columns)}) is ignored: {fault}")
        complete.append(replace(tables[fold(name)], foreign_keys=tuple(kept)))
        statements.append(without_foreign_keys(sql, unwanted) if unwanted else sql)
    statements += _indexes_and_views(connection)
    return Catalog(tuple(complete), "".join(f"{sql};\n" for sql in statements), tuple(ignored))


def _table(
    connection: sqlite3.Connection, name: str, sql: str, without_rowid: int, strict: int
) -> Table:
    rows = connection.execute(f"PRAGMA table_xinfo({quote_identifier(name)})").fetchall()
    primary = [row for row in sorted(rows, key=lambda row: row[5]) if row[5]]
    keys, has_index = _unique_indexes(connection, name)
    row_id = None
    if len(primary) == 1 and primary[0][2].upper() == "INTEGER" and not has_index:
        row_id = primary[0][1]
        keys.insert(0, Key((row_id,), primary=True))
    collations = _collations(connection, name, rows) if "COLLATE" in sql.upper() else {}
    columns = tuple(
        Column(
            name=column,
            type=declared,
            affinity=affinity_of(declared, strict=bool(strict)),
            not_null=bool(not_null) or column == row_id,
            default=default,
            generated=hidden in (2, 3),
            collation=collations.get(column, "BINARY"),
        )
        for _, column, declared, not_null, default, _, hidden in rows
    )
    return Table(
        name=name,
        columns=columns,
        keys=tuple(keys),
        checks=checks(sql),
        without_rowid=bool(without_rowid),
        strict=bool(strict),
        row_id=row_id,
    )


def _unique_indexes(connection: sqlite3.Connection, table: str) -> tuple[list[Key], bool]:
    """Keys that hold for all rows, and whether the primary key has an index of its own."""
    keys, primary_has_index = [], False
    listed = connection.execute(f"PRAGMA index_list({quote_identifier(table)})").fetchall()
    for _, index, unique, origin, partial in reversed(listed):
        primary_has_index = primary_has_index or origin == "pk"
        query = f"PRAGMA index_info({quote_identifier(index)})"
        columns = tuple(column for _, _, column in connection.execute(query))
        if unique and not partial and None not in columns:  # None: an expression
            keys.append(Key(columns, primary=origin == "pk"))
    return keys, primary_has_index


def _collations(connection: sqlite3.Connection, table: str, rows: list[tuple]) -> dict[str, str]:
    """Collations by column. Only an index tells them."""
    ours = [row[1] for row in rows]
    found = {}
    for column in ours:
        connection.execute("SAVEPOINT probing")
        connection.execute(
            f"CREATE INDEX probe_of_collation ON {quote_identifier(table)}"
            f" ({quote_identifier(column)})"
        )
        described = connection.execute("PRAGMA index_xinfo(probe_of_collation)").fetchone()
        found[column] = described[4].upper()
        connection.execute("ROLLBACK TO probing")
        connection.execute("RELEASE probing")
    return found


def _foreign_keys(connection: sqlite3.Connection, table: str) -> list[ForeignKey]:
    """As declared, in the order of declaration; no other columns where none are named."""
    declared: dict[int, list[tuple]] = {}
    for row in connection.execute(f"PRAGMA foreign_key_list({quote_identifier(table)})"):
        declared.setdefault(row[0], []).append(row)
    keys = []
    for number in sorted(declared, reverse=True):
        rows = sorted(declared[number], key=lambda row: row[1])
        named = tuple(row[4] for row in rows if row[4] is not None)
        keys.append(ForeignKey(tuple(row[3] for row in rows), rows[0][2], named))
    return keys


def _resolved(key: ForeignKey, tables: dict[str, Table]) -> tuple[ForeignKey | None, str]:
    """A foreign key with its parent's key filled in; or why SQLite cannot check it."""
    other = tables.get(fold(key.other_table))
    if other is None:
        return None, f"there is no table {key.other_table}"
    named = key.other_columns
    if not named:
        named = next((k.columns for k in other.keys if k.primary), ())
        if len(named) != len(key.columns):
            return None, f"{other.name} has no primary key of {len(key.columns)} columns"
    wanted = sorted(map(fold, named))
    if not any(sorted(map(fold, k.columns)) == wanted for k in other.keys):
        return None, f"{other.name}({', '.join(named)}) is not declared unique"
    table_columns = [other.column(name).name for name in named]
    return ForeignKey(key.columns, other.name, tuple(table_columns)), ""
