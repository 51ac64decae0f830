"""An in-memory database that is filled and queried thousands of times a second.

Queries run as in `jax_t2sql.sql.sandbox`: one reading statement behind the same authorizer, with
caps on work, rows and bytes. Work is counted in SQLite's steps and not in time, so that a run gives
the same on any machine.
"""

import sqlite3
from collections.abc import Callable, Iterable
from typing import Self

from jax_t2sql.equivalence.catalog import Catalog, Column, Rows, Table
from jax_t2sql.sql.authorizer import Authorizer, refusal
from jax_t2sql.sql.schema import fold, quote_identifier
from jax_t2sql.sql.tokens import significant, split_statement

_STEPS = 1_000
_MAX_LOOKS = 300  # 300,000 steps: some 10 ms
_MAX_ROWS = 2_000
_MAX_BYTES = 1_000_000
# They tell what was written last over the connection: by us, who fill the database over it.
_CONNECTION_FUNCTIONS = frozenset({"last_insert_rowid", "changes", "total_changes"})


class Arena:
    """One database in memory.

    Attributes:
      error: why the last `run` gave nothing, SQLite's words.
    """

    def __init__(self, ddl: str, tables: Iterable[Table]) -> None:
        """Creates the empty database; of its tables those given are filled by `load`."""
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.executescript(ddl)
        self._connection.execute("PRAGMA trusted_schema = OFF")
        self._connection.execute("PRAGMA journal_mode = OFF")
        self._connection.execute("PRAGMA temp_store = MEMORY")
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_BYTES)
        self._statements = [
            (table.name, _delete(table), _insert(table)) for table in tables if table.stored
        ]
        self._filled: set[str] = set()
        self._fence = Authorizer()
        self._ours, self._looks = True, 0
        self.error = ""
        self._connection.set_authorizer(self._authorize)
        self._connection.set_progress_handler(self._out_of_work, _STEPS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc) -> None:
        self.close()

    def close(self) -> None:
        """Frees the database."""
        self._connection.set_authorizer(None)  # unties the cycle of callbacks
        self._connection.set_progress_handler(None, 0)
        self._connection.close()

    def function(self, name: str, call: Callable[[], object]) -> None:
        """Makes a function without arguments known to queries."""
        self._connection.create_function(name, 0, call)

    def reverse_scans(self, on: bool) -> None:
        """Whether SQLite walks backwards where a query leaves the order open."""
        self._ours, self._looks = True, 0
        self._connection.execute(f"PRAGMA reverse_unordered_selects = {int(on)}")

    def load(self, rows: Rows) -> bool:
        """Replaces all that is stored. False, and nothing loaded, where a constraint forbids it."""
        self._ours, self._looks = True, 0
        execute = self._connection.execute
        for name, delete, insert in self._statements:
            new = rows.get(name)
            if name in self._filled:
                execute(delete)
                self._filled.discard(name)
            if new:
                self._filled.add(name)
                try:
                    self._connection.executemany(insert, new)
                except (sqlite3.Error, UnicodeEncodeError, OverflowError) as error:
                    self.error = str(error)
                    return False
        return True

    def accepts(self, table: str, row: tuple) -> bool:
        """Whether one more row can be inserted; it then stays."""
        self._ours, self._looks = True, 0
        insert = next(insert for name, _, insert in self._statements if name == table)
        self._filled.add(table)
        try:
            self._connection.execute(insert, row)
        except (sqlite3.Error, UnicodeEncodeError, OverflowError):
            return False
        return True

    def run(self, statement: str) -> list[tuple] | None:
        """The rows of one statement (`only_statement`), None where it fails or passes a cap."""
        self._ours, self._looks, self.error = False, 0, ""
        cursor = None
        try:
            cursor = self._connection.execute(statement)
            rows = cursor.fetchmany(_MAX_ROWS + 1)
        except (sqlite3.Error, UnicodeError, MemoryError, OverflowError) as error:
            self.error = str(error) or type(error).__name__
            return None
        finally:
            if cursor is not None:
                cursor.close()
        if len(rows) > _MAX_ROWS:
            self.error = f"more than {_MAX_ROWS:,} rows"
            return None
        return rows

    def reads(self, statement: str) -> set[tuple[str, str]] | None:
        """Folded (table, column) pairs that a statement reads; None where it does not compile."""
        self._ours, self._looks, self.error = False, 0, ""
        self._fence.begin()
        try:
            # EXPLAIN's text is in no cache, so the authorizer sees the statement compiled.
            self._connection.execute(f"EXPLAIN {statement}").close()
        except (sqlite3.Error, UnicodeError) as error:
            self.error = str(error)
            return None
        return {(fold(table), fold(column or "")) for table, column in self._fence.read}

    def columns(self, statement: str) -> tuple[str, ...]:
        """Column names of a statement that runs."""
        self._ours, self._looks = False, 0
        cursor = self._connection.execute(statement)
        names = tuple(column[0] for column in cursor.description or ())
        cursor.close()
        return names

    def _authorize(self, *asked) -> int:
        return sqlite3.SQLITE_OK if self._ours else self._fence(*asked)

    def _out_of_work(self) -> bool:
        self._looks += 1
        return self._looks > _MAX_LOOKS


def only_statement(sql: str) -> tuple[str, str]:
    """The one statement of a text, and why it cannot be run ("" if it may be tried)."""
    statement, rest = split_statement(sql)
    if not statement:
        return "", "there is no SQL statement in this text"
    return statement, refusal(statement, rest) or _of_connection(statement)


def _of_connection(statement: str) -> str:
    """Why a statement cannot be run, if it asks about the connection instead of the database."""
    tokens = significant(statement)
    for token, following in zip(tokens, tokens[1:], strict=False):
        if following.text == "(" and fold(token.value) in _CONNECTION_FUNCTIONS:
            return f"{token.text}() tells of the connection and not of what is stored"
    return ""


def loose_ddl(catalog: Catalog, tables: Iterable[Table]) -> str:
    """The tables without keys and indexes, so that rows lie in any order that one inserts them in.

    What decides the results of comparisons stays: types and collations. Tables with generated
    columns stay as they are.
    """
    statements = {_created_name(s): s for s in _statements(catalog.ddl)}
    made = []
    for table in tables:
        if any(column.generated for column in table.columns):
            made.append(statements[fold(table.name)])
        else:
            columns = ", ".join(map(_loose_column, table.columns))
            made.append(f"CREATE TABLE {quote_identifier(table.name)} ({columns})")
    views = [s for s in statements.values() if significant(s)[1].is_word("VIEW")]
    return "".join(f"{statement};\n" for statement in made + views)


def _loose_column(column: Column) -> str:
    return f"{quote_identifier(column.name)} {column.affinity} COLLATE {column.collation}"


def _statements(ddl: str) -> Iterable[str]:
    while ddl:
        statement, ddl = split_statement(ddl)
        yield statement


def _created_name(statement: str) -> str:
    tokens = significant(statement)
    after = next(i for i, t in enumerate(tokens) if t.is_word("TABLE", "INDEX", "VIEW")) + 1
    return fold(tokens[after].value)


def _delete(table: Table) -> str:
    return f"DELETE FROM {quote_identifier(table.name)}"


def _insert(table: Table) -> str:
    names = ", ".join(quote_identifier(column.name) for column in table.stored)
    marks = ", ".join("?" * len(table.stored))
    return f"INSERT INTO {quote_identifier(table.name)} ({names}) VALUES ({marks})"
