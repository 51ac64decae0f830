"""A file that a program writes for long and that others find whole or not at all."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from jax_t2sql.errors import UserError


@contextlib.contextmanager
def whole_file(out: Path) -> Iterator[TextIO]:
    """Opens a text file for writing; what was there before stays until all is written.

    Until then the text is in `<out>.part` beside it, which is removed if the block raises. Only a
    process that is killed leaves it; the next one to write `out` takes it over. A device or a pipe
    is written to as it stands.

    Raises:
      UserError: the file cannot be written, or another process is writing it.
    """
    out = Path(os.path.realpath(out))  # a link stays one
    if out.exists() and not out.is_file():
        with _open(out, out, "w") as file:
            yield file
        return
    part = out.with_name(f"{out.name}.part")
    with _open_alone(part, out) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(part, out)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def _open_alone(part: Path, out: Path) -> TextIO:
    """Opens the file, emptied, for as long as no other process has it."""
    while True:
        file = _open(part, out, "a")  # what another one writes must not be emptied
        try:
            _lock(file)
            if os.fstat(file.fileno()).st_ino == part.stat().st_ino:
                file.truncate(0)
                return file
        except BlockingIOError:
            file.close()
            raise UserError(
                f"--out {out} is being written by another run; wait for its end, or name another"
                " file"
            ) from None
        except FileNotFoundError:
            pass
        file.close()  # meanwhile the other one was done with it: it has its name no more


def _lock(file: TextIO) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass  # a file system without locks


def _open(path: Path, out: Path, mode: str) -> TextIO:
    try:
        return open(path, mode, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"--out {out} cannot be written ({error.strerror}); name a file in a folder"
            " that is there and may be written to"
        ) from None
