"""Results of gold queries in a folder, so that the next run need not run them again.

A file's name is the hash of all that its result depends on: what is in the database, the query, the
limits, SQLite's version. Nothing ever has to be invalidated, and deleting files is always safe. A
file that is damaged, or is not what its name says, is as good as none.
"""

import contextlib
import hashlib
import json
import os
import secrets
import sqlite3
import time
from pathlib import Path

from jax_t2sql.errors import UserError
from jax_t2sql.sql.database import file_identity
from jax_t2sql.sql.outcome import Limits, Outcome

_FORMAT = 1
_SUFFIX = ".gold"
# A temporary file this old belongs to a process that was killed while it wrote.
_STALE_SECONDS = 3600.0


class GoldFiles:
    """A folder of gold results; any number of processes may use it at the same time."""

    def __init__(self, folder: str | os.PathLike, *, limits: Limits) -> None:
        """Opens the folder, made if need be.

        Args:
          folder: where the files are. Whoever can write there decides what is right.
          limits: that gold queries run under.

        Raises:
          UserError: the folder cannot be made.
        """
        self._folder = Path(folder)
        self._limits = limits
        self._hashes: dict[tuple[int, ...], str] = {}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"{folder}: this folder for gold results cannot be made: {error.strerror};"
                " pass another one, or none"
            ) from None
        for leftover in self._folder.glob("*.tmp"):
            with contextlib.suppress(OSError):
                if time.time() - leftover.stat().st_mtime > _STALE_SECONDS:
                    leftover.unlink()

    def read(self, path: str | os.PathLike, sql: str) -> Outcome | None:
        """The kept result of a query on a database file, None if there is none.

        Raises:
          UserError: the database is missing.
        """
        key = self._key(path, sql)
        try:
            digest, _, body = self._file(key).read_bytes().partition(b"\n")
            if digest != _digest(body):
                return None
            kept = json.loads(body)
            if kept["key"] != key:
                return None
            return _from_json(kept)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def write(self, path: str | os.PathLike, sql: str, outcome: Outcome) -> None:
        """Keeps a result. A folder that is full or read-only is no reason to fail: nothing is kept.

        Raises:
          UserError: the database is missing.
        """
        key = self._key(path, sql)
        body = json.dumps({"key": key, **_to_json(outcome)}).encode("ascii")
        # Written aside, then renamed: readers see all or nothing, and of two writers one wins.
        temporary = self._folder / f"{secrets.token_hex(8)}.tmp"
        try:
            temporary.write_bytes(_digest(body) + b"\n" + body)
            os.replace(temporary, self._file(key))
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def _file(self, key: list[str]) -> Path:
        name = hashlib.sha256(json.dumps(key).encode("ascii")).hexdigest()
        return self._folder / (name + _SUFFIX)

    def _key(self, path: str | os.PathLike, sql: str) -> list[str]:
        versions = f"format {_FORMAT}, SQLite {sqlite3.sqlite_version}"
        return [versions, self._content_hash(path), repr(self._limits), sql]

    def _content_hash(self, path: str | os.PathLike) -> str:
        """SHA-256 of a file, read once for as long as the file stays what it is."""
        identity = file_identity(path)
        if identity not in self._hashes:
            with open(path, "rb") as file:
                self._hashes[identity] = hashlib.file_digest(file, "sha256").hexdigest()
        return self._hashes[identity]


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode("ascii")


def _to_json(outcome: Outcome) -> dict:
    """JSON keeps integers, REALs (by their shortest digits) and texts exactly; blobs as hex."""
    rows = [
        [{"blob": cell.hex()} if isinstance(cell, bytes) else cell for cell in row]
        for row in outcome.rows
    ]
    return {
        "columns": outcome.columns,
        "rows": rows,
        "seconds": outcome.seconds,
        "size": outcome.size,
        "reads": sorted(outcome.reads),
    }


def _from_json(kept: dict) -> Outcome:
    rows = [
        tuple([bytes.fromhex(cell["blob"]) if isinstance(cell, dict) else cell for cell in row])
        for row in kept["rows"]
    ]
    return Outcome(
        "ok",
        tuple(kept["columns"]),
        rows,
        seconds=kept["seconds"],
        size=kept["size"],
        reads=frozenset(kept["reads"]),
    )
