"""Running a query that nobody has vetted: one statement, reading only, bounded.

Four fences, each enough for some attacks and none for all: the file is opened read-only and
immutable; an authorizer lets through reading alone; a tokenizer finds a second statement; time,
rows and bytes have caps. What none of them stops is one long step inside SQLite (a pathological
LIKE): that takes a process that can be killed, `jax_t2sql.grading.GradingPool`.
"""

import contextlib
import os
import sqlite3
import time
from typing import Self

from jax_t2sql.sql.authorizer import Authorizer, refusal
from jax_t2sql.sql.database import connect_readonly, decode_text
from jax_t2sql.sql.outcome import Limits, Outcome
from jax_t2sql.sql.quoted import texts_in_double_quotes, warning
from jax_t2sql.sql.schema import fold, quote_identifier
from jax_t2sql.sql.tokens import split_statement

MAX_SQL_CHARS = 1_000_000
_MAX_WARNED_CHARS = 20_000  # taking a longer statement apart would outlast its time limit
_STEPS_BETWEEN_LOOKS = 1_000  # SQLite VM instructions; about 20 microseconds
_ROWS_BETWEEN_LOOKS = 256


def execute(path: str | os.PathLike, sql: str, *, limits: Limits | None = None) -> Outcome:
    """Runs one query on a database file and never changes it.

    In this process: fit for queries that one has seen. For a model's, use `GradingPool`, which can
    also kill a query that is stuck and bounds its memory.

    Raises:
      UserError: the database cannot be opened. Whatever is wrong with the query is an Outcome.
    """
    with Sandbox(path, limits=limits or Limits()) as sandbox:
        return sandbox.execute(sql)


class Sandbox:
    """An open database on which untrusted queries run, one after the other, in one thread."""

    def __init__(self, path: str | os.PathLike, *, limits: Limits) -> None:
        """Opens the file; raises UserError if that fails."""
        self._limits = limits
        self._connection = connect_readonly(path)
        # Strict decoding is quicker; the first text that is not UTF-8 brings the other rule back.
        self._connection.text_factory = str
        self._columns_of: dict[str, frozenset[str]] = {}
        self._authorizer = Authorizer(_stored_tables(self._connection))
        self._deadline = float("inf")
        # No spill files beside the database or in the temporary folder.
        self._connection.execute("PRAGMA temp_store = MEMORY")
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 4 * MAX_SQL_CHARS)
        self._longest = 0
        self._allow_length(limits.max_bytes)
        _connect_virtual_tables(self._connection)
        self._connection.set_authorizer(self._authorizer)
        self._connection.set_progress_handler(self._out_of_time, _STEPS_BETWEEN_LOOKS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        self._connection.set_authorizer(None)  # unties the cycle of callbacks
        self._connection.set_progress_handler(None, 0)
        self._connection.close()

    def execute(self, sql: str, *, limits: Limits | None = None, warn: bool = True) -> Outcome:
        """Runs the one statement in the text. Trailing semicolons and comments are dropped.

        Args:
          sql: the text.
          limits: instead of the sandbox's own, for this query alone.
          warn: look for what the outcome's warnings tell.
        """
        limits = limits or self._limits
        start = time.monotonic()
        if len(sql) > MAX_SQL_CHARS:
            excess = f"the SQL has {len(sql):,} characters; at most {MAX_SQL_CHARS:,} are run"
            return Outcome("refused", message=excess)
        statement, rest = split_statement(sql)
        if not statement:
            return Outcome("no_query", message="there is no SQL statement in this text")
        refused = refusal(statement, rest)
        if refused:
            return Outcome("refused", message=refused)
        self._authorizer.begin()
        self._deadline = start + limits.seconds
        self._allow_length(limits.max_bytes)
        try:
            columns, rows, size, excess = self._fetch_decoded(statement, limits)
        except MemoryError:  # Python's word for SQLITE_NOMEM, too
            return Outcome(
                "too_large",
                message="the query needs more memory than a query may have",
                seconds=time.monotonic() - start,
                code="SQLITE_NOMEM",
            )
        except UnicodeEncodeError:
            return Outcome(
                "error", message="the SQL holds half of a surrogate pair, which is no text"
            )
        except (sqlite3.Error, UnicodeDecodeError) as error:
            return self._failure(error, time.monotonic() - start, limits)
        finally:
            self._deadline = float("inf")
        seconds = time.monotonic() - start
        if excess:
            return Outcome("too_large", message=excess, seconds=seconds)
        reads = self._authorizer.stored_columns()
        warnings = self._texts_in_double_quotes(statement) if warn else ()
        warnings = tuple(map(warning, warnings))
        return Outcome(
            "ok", columns, rows, warnings=warnings, seconds=seconds, size=size, reads=reads
        )

    def _allow_length(self, longest: int) -> None:
        """Bounds single texts and blobs. A floor, as the stored schema itself must fit."""
        longest = min(max(longest, 1_000_000), 2**31 - 1)
        if longest != self._longest:
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)
            self._longest = longest

    def _fetch_decoded(self, statement: str, limits: Limits) -> "_Fetched":
        try:
            return self._fetch(statement, limits)
        except sqlite3.OperationalError as error:
            if self._connection.text_factory is not str or "decode to UTF-8" not in str(error):
                raise
        self._connection.text_factory = decode_text
        return self._fetch(statement, limits)

    def _fetch(self, statement: str, limits: Limits) -> "_Fetched":
        max_rows, max_bytes = limits.max_rows, limits.max_bytes
        cursor = self._connection.execute(statement)
        try:
            columns = tuple(column[0] for column in cursor.description or ())
            rows: list[tuple] = []
            size, row_size = 0, 8 * len(columns)
            for row in cursor:
                size += row_size
                for cell in row:
                    kind = cell.__class__
                    if kind is str or kind is bytes:
                        size += len(cell)
                if size > max_bytes:
                    return columns, [], size, f"the result has more than {max_bytes:,} bytes"
                rows.append(row)
                if len(rows) > max_rows:
                    return columns, [], size, f"the result has more than {max_rows:,} rows"
                if len(rows) % _ROWS_BETWEEN_LOOKS == 0 and self._out_of_time():
                    raise sqlite3.OperationalError("interrupted")
            return columns, rows, size, ""
        finally:
            cursor.close()

    def _failure(self, error: Exception, seconds: float, limits: Limits) -> Outcome:
        message, code = str(error), getattr(error, "sqlite_errorname", "")
        if self._authorizer.denied:
            message = (
                f"{message}: {self._authorizer.denied}. The database is read-only: run one SELECT"
            )
            return Outcome("refused", message=message, seconds=seconds, code=code)
        if seconds >= limits.seconds and message == "interrupted":
            limit = f"{limits.seconds:g} s"
            return Outcome("timeout", message=f"stopped after {limit}", seconds=seconds, code=code)
        if code in ("SQLITE_TOOBIG", "SQLITE_NOMEM"):
            return Outcome("too_large", message=message, seconds=seconds, code=code)
        return Outcome("error", message=message, seconds=seconds, code=code)

    def _out_of_time(self) -> bool:
        return time.monotonic() >= self._deadline

    def _texts_in_double_quotes(self, statement: str) -> list[str]:
        if '"' not in statement or len(statement) > _MAX_WARNED_CHARS:
            return []
        tables = {table for table, _ in self._authorizer.read}
        known = {fold(column) for _, column in self._authorizer.read} | {"rowid", "oid", "_rowid_"}
        for table in tables:
            known |= {fold(table)} | self._columns(table)
        return texts_in_double_quotes(statement, known)

    def _columns(self, table: str) -> frozenset[str]:
        """Folded names of a table's columns, hidden ones included."""
        if table not in self._columns_of:
            names = _names(self._connection, "pragma_table_xinfo(?)", table)
            self._columns_of[table] = frozenset(map(fold, names))
        return self._columns_of[table]


# Column names, rows, their size in bytes, and what is too large about them ("" if nothing).
_Fetched = tuple[tuple[str, ...], list[tuple], int, str]


def _stored_tables(connection: sqlite3.Connection) -> frozenset[str]:
    """Folded names of the tables in the file, the schema's own included."""
    names = _names(connection, "sqlite_master WHERE type = 'table'")
    return frozenset(map(fold, names)) | {"sqlite_master"}


def _connect_virtual_tables(connection: sqlite3.Connection) -> None:
    """Has the virtual tables set up before there is an authorizer.

    An R*-tree prepares the statements that would write to it when it is first used, although
    nothing runs them.
    """
    for name in _names(connection, "sqlite_master WHERE type = 'table' AND rootpage = 0"):
        # One of an unknown module, or a damaged one, is an error of the queries that use it.
        with contextlib.suppress(sqlite3.Error, UnicodeEncodeError):
            connection.execute(f"SELECT 1 FROM {quote_identifier(name)} LIMIT 0").close()


def _names(connection: sqlite3.Connection, source: str, *parameters: str) -> list[str]:
    """Names in the schema; not all are UTF-8."""
    factory, connection.text_factory = connection.text_factory, decode_text
    try:
        return [name for (name,) in connection.execute(f"SELECT name FROM {source}", parameters)]
    finally:
        connection.text_factory = factory
