"""Database files: finding them by id, and opening them so that nothing can change them."""

import difflib
import os
import sqlite3
from pathlib import Path

from jax_t2sql.errors import UserError

_MAX_NAME_BYTES = 255  # of a file, on every usual file system
_MAGIC = b"SQLite format 3\x00"
_LFS_POINTER = b"version https://git-lfs"
# How a rollback journal begins that is still to be played back; one that is done with has zeros.
# Source: https://www.sqlite.org/fileformat.html#the_rollback_journal
_HOT_JOURNAL = bytes.fromhex("d9d505f920a163d7")


def resolve_database(databases: str | os.PathLike, db_id: str) -> Path:
    """Finds the SQLite file of a database id.

    Args:
      databases: a directory with `<id>/<id>.sqlite` or `<id>.sqlite` files, or one SQLite file,
        which then serves every id.
      db_id: name of the database. It names a file, so it may hold no path separator.

    Raises:
      UserError: no such file, or the file is no readable SQLite database.
    """
    databases = Path(databases)
    if databases.is_file():
        return check_database(databases)
    if not databases.is_dir():
        raise UserError(f"{databases}: no such directory or file; pass the folder of the databases")
    too_long = len(f"{db_id}.sqlite".encode("utf-8", "surrogatepass")) > _MAX_NAME_BYTES
    if not db_id or db_id in (".", "..") or set(db_id) & {"/", "\\", "\0"} or too_long:
        shown = db_id if len(db_id) <= 60 else db_id[:60] + "…"
        raise UserError(f"database id {shown!r} is no plain name; correct db_id in the data")
    candidates = (databases / db_id / f"{db_id}.sqlite", databases / f"{db_id}.sqlite")
    for candidate in candidates:
        if candidate.is_file():
            return check_database(candidate)
    near = difflib.get_close_matches(db_id, _database_ids(databases), n=3)
    hint = f"; near names here: {', '.join(near)}" if near else ""
    raise UserError(
        f"database {db_id!r}: neither {candidates[0]} nor {candidates[1]} exists"
        f"{hint}. Pass the folder that holds it"
    )


def _database_ids(directory: Path) -> list[str]:
    return [entry.name.removesuffix(".sqlite") for entry in directory.iterdir()]


def check_database(path: Path) -> Path:
    """Returns the path of a file that has SQLite's header and no unfinished change beside it.

    Raises:
      UserError: it is no such file.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(len(_LFS_POINTER))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    if head.startswith(_LFS_POINTER):
        raise UserError(f"{path}: is a Git LFS pointer; fetch the file itself with `git lfs pull`")
    if not head.startswith(_MAGIC):
        fault = "is empty" if not head else f"starts with {head[:16]!r}"
        raise UserError(f"{path}: {fault}, which is no SQLite database; replace the file")
    # SQLite keeps them beside the file itself, wherever a link to it is.
    real = os.path.realpath(path)
    # An immutable open ignores the log, so rows committed to it alone would silently be missing.
    log = Path(f"{real}-wal")
    if log.is_file() and log.stat().st_size > 0:
        raise UserError(
            f"{path}: {log.name} holds {log.stat().st_size} bytes of changes that are not in the"
            " file; run `PRAGMA wal_checkpoint(TRUNCATE)` with the sqlite3 shell first"
        )
    journal = Path(f"{real}-journal")
    if journal.is_file() and _head(journal) == _HOT_JOURNAL:
        raise UserError(
            f"{path}: {journal.name} holds the undoing of a change that was broken off, so the file"
            " itself is half changed; read it once with the sqlite3 shell (`.tables`) first"
        )
    return path


def _head(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(len(_HOT_JOURNAL))


def connect_readonly(path: str | os.PathLike) -> sqlite3.Connection:
    """Opens a database for reading alone: no lock, no journal, no byte of the file changed.

    Text that is not UTF-8 decodes with surrogateescape: never an error, and distinct bytes stay
    distinct, by the same rule for gold and prediction. Statements are not cached, so that an
    authorizer sees every one.

    Raises:
      UserError: the file is missing or cannot be opened.
    """
    # as_uri() percent-encodes what a URI would read otherwise: '#', '?', '%', blanks.
    uri = f"{Path(path).absolute().as_uri()}?mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, cached_statements=0)
        connection.text_factory = decode_text
        connection.execute("SELECT 1 FROM sqlite_master").close()
    except (sqlite3.Error, ValueError) as error:
        raise UserError(f"{path}: cannot be opened as a SQLite database: {error}") from None
    return connection


def decode_text(text: bytes) -> str:
    """Text of a database; bytes that are no UTF-8 become lone surrogates."""
    return text.decode("utf-8", "surrogateescape")


def file_identity(path: str | os.PathLike) -> tuple[int, ...]:
    """What changes when the file at a path is replaced or rewritten: device, inode, size, times.

    Stands for a content hash where hashing gigabytes before the first query would cost more than
    all queries together.

    Raises:
      UserError: the file is missing.
    """
    try:
        stat = os.stat(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
