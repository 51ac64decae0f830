"""What every program does with the ways it can end: bad input, Ctrl-C, a closed pipe."""

import contextlib
import errno
import os
import select
import sys
from collections.abc import Callable
from typing import NoReturn, TextIO

from jax_t2sql.errors import UserError

# A full or read-only disk, a quota, a file size limit, missing rights, a folder that is a file: for
# the user to mend.
_DISK_FAULTS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    *(errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR),
)
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE, likewise


def run_program(
    main_fn: Callable[[], int | None],
    *,
    interrupted: str = "interrupted; resume with the same command",
) -> NoReturn:
    """Runs a program's ``main`` and exits with its status (None counts as 0).

    - ``UserError``: its one message on standard error, no traceback, status 2.
    - Ctrl-C: the line ``interrupted``, status 130.
    - Standard output closed by its reader (``report DIR | head``): silence, status 141.
    - Anything else is a fault of ours and propagates with its traceback.
    """
    try:
        status = main_fn()
        # Here rather than at interpreter exit, where a closed pipe can no longer be handled.
        sys.stdout.flush()
    except UserError as error:
        _say(f"error: {error}")
        status = EXIT_USER_ERROR
    except KeyboardInterrupt:
        _say(interrupted)
        status = EXIT_INTERRUPTED
    except BrokenPipeError:
        closed = [stream for stream in (sys.stdout, sys.stderr) if _reader_gone(stream)]
        if not closed:  # some other pipe, say a worker's: a fault that must be seen
            raise
        for stream in closed:
            _discard(stream)
        status = EXIT_BROKEN_PIPE
    sys.exit(status)


def raise_disk_fault(error: OSError, place: object, then: str) -> None:
    """Raises UserError if the user can mend what failed, a full disk or missing rights.

    Args:
      error: what was raised.
      place: what the program was writing to, should the error not name a file.
      then: what running the same command again will do.
    """
    if error.errno in _DISK_FAULTS:
        raise UserError(
            f"cannot use {error.filename or place}: {error.strerror}. Make room or mend the rights,"
            f" then run the same command: {then}"
        ) from error


def _say(message: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens; the exit status still tells
        print(message, file=sys.stderr, flush=True)


def _reader_gone(stream: TextIO) -> bool:
    try:
        poller = select.poll()
        poller.register(stream.fileno(), 0)  # errors and hang-ups are always reported
        return bool(poller.poll(0))
    except (OSError, ValueError):  # no descriptor behind it, or already closed
        return False


def _discard(stream: TextIO) -> None:
    """Points the descriptor at nothing, so that the flush at interpreter exit cannot fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
