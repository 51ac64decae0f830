"""What a query may do: read what is stored, in one statement.

A second statement and a writing first word are found in the text, so that the refusal can name
them; all else, and whatever the text hides, by SQLite's authorizer when it compiles the statement.
"""

import re
import sqlite3

from jax_t2sql.sql.schema import fold

# They read the schema and take no value; data_version is what full-text tables ask internally.
SCHEMA_PRAGMAS = frozenset(
    {
        "table_info", "table_xinfo", "table_list", "foreign_key_list",
        "index_list", "index_info", "index_xinfo", "data_version",
    }
)  # fmt: skip

# load_extension runs code; fts3_tokenizer takes and gives raw pointers.
_FORBIDDEN_FUNCTIONS = frozenset({"load_extension", "fts3_tokenizer"})

# What SQLite itself reads when it declares the columns of a table-valued function.
_OF_TABLE_FUNCTIONS = ("sqlite_master", "ROWID")

_MAX_NAMES = 10_000  # kept folded; a query can make up any number

_READING = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE)

# Statements that are never a question. Named so that the refusal can say which it was; the
# authorizer stands behind this list.
_WRITING_WORDS = (
    "ALTER", "ANALYZE", "ATTACH", "BEGIN", "COMMIT", "CREATE", "DELETE", "DETACH", "DROP", "END",
    "INSERT", "REINDEX", "RELEASE", "REPLACE", "ROLLBACK", "SAVEPOINT", "UPDATE", "VACUUM",
)  # fmt: skip
_FIRST_WORD = re.compile(r"[A-Za-z0-9_$\x80-\U0010ffff]*")


def refusal(statement: str, rest: str) -> str:
    """Why a text is not to be run at all, "" if it may be tried."""
    if rest:
        shown = rest if len(rest) <= 60 else rest[:60] + "…"
        return f"only one statement can be run at a time, but a second one follows: {shown}"
    word = _FIRST_WORD.match(statement)[0].upper()
    if word in _WRITING_WORDS:
        return f"{word} is not allowed. The database is read-only: run one SELECT"
    return ""


class Authorizer:
    """SQLite asks it for each thing that a statement is about to do.

    Attributes:
      read: (table, column) of all that the statement reads; column "" for a table of which it reads
        none.
      denied: what it wanted to do and may not, "" if nothing.
    """

    def __init__(self, stored: frozenset[str]) -> None:
        """Takes the folded names of the tables that are stored in the file."""
        self.read: set[tuple[str, str]] = set()
        self.denied = ""
        self._stored = stored
        self._names: dict[tuple[str, str], str | None] = {}

    def begin(self) -> None:
        """Forgets the statement before."""
        self.read.clear()
        self.denied = ""

    def __call__(self, action: int, first, second, database, source) -> int:
        """SQLITE_OK or SQLITE_DENY."""
        if action in _READING:
            if action == sqlite3.SQLITE_READ and first:
                self.read.add((first, second))
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION and fold(second) not in _FORBIDDEN_FUNCTIONS:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_PRAGMA and fold(first) in SCHEMA_PRAGMAS:
            return sqlite3.SQLITE_OK
        # What SQLite asks when it declares the columns of a virtual or table-valued function's
        # table. A real UPDATE of it fails in SQLite itself, whatever the authorizer says.
        if action == sqlite3.SQLITE_UPDATE and first in ("sqlite_master", "sqlite_temp_master"):
            return sqlite3.SQLITE_OK
        asked = _ACTIONS.get(action, "this statement").format(first, second)
        self.denied = f"{asked} is not allowed"
        return sqlite3.SQLITE_DENY

    def stored_columns(self) -> frozenset[str]:
        """Folded names of the columns read of stored tables."""
        if len(self._names) > _MAX_NAMES:
            self._names.clear()
        names = {self._names.get(pair) or self._stored_column(pair) for pair in self.read}
        return frozenset(names - {None})

    def _stored_column(self, pair: tuple[str, str]) -> str | None:
        table, column = pair
        is_stored = fold(table) in self._stored and pair != _OF_TABLE_FUNCTIONS
        self._names[pair] = name = fold(column) if is_stored else None
        return name


_ACTIONS = {
    sqlite3.SQLITE_PRAGMA: "PRAGMA {0}",
    sqlite3.SQLITE_FUNCTION: "the function {1}",
    sqlite3.SQLITE_INSERT: "writing to {0}",
    sqlite3.SQLITE_UPDATE: "writing to {0}",
    sqlite3.SQLITE_DELETE: "writing to {0}",
    sqlite3.SQLITE_TRANSACTION: "a transaction",
    sqlite3.SQLITE_ATTACH: "ATTACH",
}
