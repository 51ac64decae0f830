"""Verdicts on disk, so that what was graded once is never graded again.

A verdict's key is the hash of all that it depends on: what is in the database, both queries, the
grader with its options, the limits, SQLite's version. Nothing ever has to be invalidated, and
deleting the file is always safe.
"""

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from jax_t2sql.errors import UserError
from jax_t2sql.sql.database import file_identity

_FORMAT = 1  # of keys and values, and of what a grader's name stands for
_BUSY_SECONDS = 30.0  # that another process may take to write


class Kept(NamedTuple):
    """What is kept of a verdict: see `records.VerdictRow`."""

    kind: str
    correct: bool | None
    value: float | None
    detail: str


class Memo:
    """A file of verdicts, for several processes at a time. A context manager; one thread."""

    def __init__(self, path: str | os.PathLike) -> None:
        """Opens the file, made if need be.

        Raises:
          UserError: it cannot be made, or is something else.
        """
        self._path = Path(path)
        self._contents: dict[tuple[int, ...], str] = {}
        with self._faults():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")  # a lost verdict is found again
            self._file.execute(
                "CREATE TABLE IF NOT EXISTS verdicts"
                " (key BLOB PRIMARY KEY, kept TEXT NOT NULL) WITHOUT ROWID"
            )

    def key(self, database: Path, gold: str, pred: str, grader: str, limits: str) -> bytes:
        """The key of a verdict.

        Args:
          database: the file; its content is hashed once, and again when it changes.
          gold, pred: the queries.
          grader: name and options, whatever could change the verdict.
          limits: that queries run under.

        Raises:
          UserError: the database cannot be read.
        """
        parts = [_FORMAT, self._content(database), gold, pred, grader, limits]
        text = json.dumps([*parts, sqlite3.sqlite_version])
        return hashlib.sha256(text.encode("ascii")).digest()

    def read(self, keys: Iterable[bytes]) -> dict[bytes, Kept]:
        """What is known of these keys."""
        found = {}
        with self._faults():
            for key in keys:
                row = self._file.execute(
                    "SELECT kept FROM verdicts WHERE key = ?", (key,)
                ).fetchone()
                if row:
                    found[key] = Kept(*json.loads(row[0]))
        return found

    def write(self, verdicts: Mapping[bytes, Kept]) -> None:
        """Keeps verdicts; all of them or, if the process is killed, none."""
        with self._faults():
            self._file.execute("BEGIN IMMEDIATE")
            self._file.executemany(
                "INSERT OR IGNORE INTO verdicts VALUES (?, ?)",
                [(key, json.dumps(kept)) for key, kept in verdicts.items()],
            )
            self._file.execute("COMMIT")

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _content(self, database: Path) -> str:
        identity = file_identity(database)
        if identity not in self._contents:
            try:
                with open(database, "rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise UserError(f"{database} cannot be read ({error.strerror})") from None
            self._contents[identity] = digest
        return self._contents[identity]

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, ValueError, TypeError) as error:
            raise UserError(
                f"{self._path}: verdicts cannot be kept there ({error}); delete the file if it"
                " is damaged, or name another one"
            ) from None
