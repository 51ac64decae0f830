"""A bus in a directory: durable, atomic creation, and no symbolic link is ever followed.

Own code and not obstore's `LocalStore`, which lays out the same files, because that one neither
fsyncs nor refuses links, and both are rules of the bus.
"""

import contextlib
import errno
import os
import stat
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

from jax_t2sql.bus import keys as names
from jax_t2sql.bus.faults import NoRun
from jax_t2sql.bus.store import MAX_OBJECT_BYTES
from jax_t2sql.errors import UserError

# Beside the prefixes, on the same file system, and no name of the bus: listings never see it.
_STAGING = ".staging"
_ABANDONED_SECONDS = 3600.0


class DirectoryStore:
    """Objects are files below `root`.

    A new object is written and fsynced under a private name, hard-linked to its own (which fails
    if that exists), and then its directory is fsynced. So a reader sees all of it or nothing, even
    after a power cut: a torn file can only come from a damaged disk.
    """

    def __init__(self, root: Path, *, create: bool = True):
        if not create and not (root / names.LOG).is_dir():
            raise NoRun(
                f"there is no bus in {str(root)!r}: it has no folder {names.LOG!r}; give the "
                "directory of a run's bus, usually WORKDIR/bus"
            )
        try:
            for prefix in (*names.PREFIXES, _STAGING):
                (root / prefix).mkdir(parents=True, exist_ok=True)
            self.root = root.resolve(strict=True)
            _fsync_directory(self.root)
            self._sweep()
        except OSError as error:
            raise UserError(
                f"bus directory {str(root)!r} cannot be made or opened ({error.strerror}); "
                "give a directory that this user can write to"
            ) from error

    def __repr__(self) -> str:
        return f"DirectoryStore({str(self.root)!r})"

    def __str__(self) -> str:
        return str(self.root)

    def create(self, key: str, data: bytes, *, durable: bool = True) -> None:
        target = self._target(key)
        with self._staged(data, durable=durable) as staged:
            try:
                os.link(staged, target)
            except OSError as error:
                if error.errno in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                    raise UserError(
                        f"the file system of {str(self.root)!r} has no hard links, so two writers "
                        "could overwrite each other; put the bus on another one, or in a bucket"
                    ) from error
                raise
        if durable:
            _fsync_directory(target.parent)

    def overwrite(self, key: str, data: bytes) -> None:
        target = self._target(key)
        with self._staged(data, durable=False) as staged:
            os.replace(staged, target)

    def read(self, key: str, *, max_bytes: int = MAX_OBJECT_BYTES) -> bytes:
        path = self._path(key)
        try:
            # O_NONBLOCK: opening a FIFO that somebody left here must not hang.
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise ValueError(f"{str(path)!r} is a symbolic link; the bus has none") from error
            raise
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            os.close(handle)
            raise ValueError(f"{str(path)!r} is not a regular file")
        with os.fdopen(handle, "rb") as file:
            if status.st_size > max_bytes:
                raise ValueError(f"{key!r} has {status.st_size} bytes, the limit is {max_bytes}")
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:  # grown since
            raise ValueError(f"{key!r} has more than {max_bytes} bytes")
        return data

    def keys(self, prefix: str, *, start: str = "") -> list[str]:
        found = []
        if (self.root / prefix.rstrip("/")).is_symlink():
            return []
        for name in _names_in(self.root / prefix):
            folder = f"{prefix}{name}"
            if not names.has_folders(prefix):
                found.append(folder)
            # A folder whose names all come before `start` is not even read.
            elif (
                names.is_folder(prefix, name)
                and folder >= start[: len(folder)]
                and not (self.root / folder).is_symlink()
            ):
                found += [f"{folder}/{file}" for file in _names_in(self.root / folder)]
        return sorted(key for key in found if key >= start)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            path = self._path(key)
            path.unlink(missing_ok=True)
            if path.parent.parent != self.root:
                with contextlib.suppress(OSError):  # still holds files
                    path.parent.rmdir()

    def local_path(self, key: str) -> Path | None:
        return self._path(key)

    def _sweep(self) -> None:
        """Remove what killed writers left half-written. A writer alive after all puts again."""
        for staged in (self.root / _STAGING).iterdir():
            with contextlib.suppress(FileNotFoundError):
                if time.time() - staged.lstat().st_mtime > _ABANDONED_SECONDS:
                    staged.unlink()

    def _path(self, key: str) -> Path:
        path = self.root / names.check_key(key)
        parent = path.parent
        while parent != self.root:
            if parent.is_symlink():
                raise ValueError(f"{str(parent)!r} is a symbolic link; the bus has none")
            parent = parent.parent
        return path

    def _target(self, key: str) -> Path:
        """The path to write, its directory made; a new directory is itself durable."""
        path = self._path(key)
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            _fsync_directory(path.parent.parent)
        return path

    @contextlib.contextmanager
    def _staged(self, data: bytes, *, durable: bool):
        staged = self.root / _STAGING / uuid.uuid4().hex
        try:
            with open(staged, "xb") as file:
                file.write(data)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            yield staged
        finally:
            staged.unlink(missing_ok=True)


def _names_in(directory: Path) -> list[str]:
    """What is in a directory; nothing if it is none, or was collected meanwhile."""
    try:
        return os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _fsync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
