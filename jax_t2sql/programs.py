"""What every program does with the ways it can end: bad input, Ctrl-C, a closed pipe."""

import contextlib
import errno
import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from typing import NoReturn, TextIO

from jax_t2sql.errors import StoreAway, UserError

# A full or read-only disk, a quota, a file size limit, missing rights, a folder that is a file: for
# the user to mend.
_DISK_FAULTS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    *(errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR),
)
EXIT_USER_ERROR = 2
EXIT_STORE_AWAY = 75  # EX_TEMPFAIL: the same command may go well later
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE, likewise
# How a scheduler, and a terminal that is closed, tell a program to end.
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def run_program(
    main_fn: Callable[[], int | None],
    *,
    interrupted: str = "interrupted; resume with the same command",
) -> NoReturn:
    """Runs a program's ``main`` and exits with its status (None counts as 0).

    - ``UserError``: its one message on standard error, no traceback, status 2.
    - ``StoreAway``: likewise, status 75.
    - Ctrl-C: the line ``interrupted``, status 130. SIGTERM and SIGHUP likewise, statuses 143 and
      129; a second one ends the program at once.
    - Standard output closed by its reader (``report DIR | head``): silence, status 141.
    - Anything else is a fault of ours and propagates with its traceback.
    """
    _open_standard_descriptors()
    # It warns of queries with their text as it is, which a terminal may act on.
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        with _ending_signals_raised():
            status = main_fn()
            # Here rather than at interpreter exit, where a closed pipe can no longer be handled.
            if sys.stdout is not None:
                sys.stdout.flush()
    except UserError as error:
        _say(f"error: {error}")
        status = EXIT_USER_ERROR
    except StoreAway as error:
        _say(f"error: {error}")
        status = EXIT_STORE_AWAY
    except KeyboardInterrupt as end:
        told = isinstance(end, Ended)
        _say(end.message if told and end.message else interrupted)
        status = 128 + end.signal if told else EXIT_INTERRUPTED
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


def _open_standard_descriptors() -> None:
    """Lest a file opened later gets the number of a closed one, and whatever others write there."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    if sys.stderr is None:  # which print() would take for standard output
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (for as long as the program runs)


class Ended(KeyboardInterrupt):
    """A signal has told the program to end. Whatever lets Ctrl-C through lets this through.

    message: what to tell the user instead of the program's usual line.
    """

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(number)
        self.signal, self.message = number, message


@contextlib.contextmanager
def _ending_signals_raised() -> Iterator[None]:
    """Turns them into an exception, so that what is open is closed and half a file removed."""

    def end(number: int, frame: object) -> NoReturn:
        signal.signal(number, signal.SIG_DFL)
        raise Ended(number)

    # One that is ignored (nohup) stays so, and one that something else handles is its own.
    handled = [s for s in _ENDING_SIGNALS if signal.getsignal(s) is signal.SIG_DFL]
    for number in handled:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


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
