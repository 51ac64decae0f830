"""What a file held when a dataset was made from it, so that a change can be seen later."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from jax_t2sql.errors import UserError

_CHUNK = 2**20


@dataclass(frozen=True)
class FileRecord:
    """A file's place, length and content hash."""

    path: str
    bytes: int
    sha256: str


def record_file(path: Path, name: str | None = None) -> FileRecord:
    """Hashes a file.

    Args:
      path: of the file.
      name: what to call it; its absolute path if not given.

    Raises:
      UserError: it cannot be read.
    """
    digest, size = hashlib.sha256(), 0
    try:
        with open(path, "rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    return FileRecord(name or str(path.absolute()), size, digest.hexdigest())


def check_file(record: FileRecord, path: Path, *, remade: str, content: bool = True) -> None:
    """Compares a file with its record.

    Args:
      record: of the file as it was.
      path: where it is now.
      remade: what to do about a change, for the message.
      content: hash it; False compares the length alone, which takes no time for gigabytes.

    Raises:
      UserError: it is gone or another one.
    """
    if not path.is_file():
        raise UserError(f"{path} is gone; {remade}")
    size = path.stat().st_size
    if size != record.bytes or (content and record_file(path).sha256 != record.sha256):
        raise UserError(
            f"{path} is not the file that the dataset was made with ({record.bytes} bytes, sha256"
            f" {record.sha256[:12]}…); {remade}"
        )
