"""Where programs that judge files of pairs write: verdicts, progress, notes."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from jax_t2sql.errors import UserError
from jax_t2sql.progress import Progress

# Between two lines of progress: a terminal draws over the last one, a log file keeps them all.
_TERMINAL_SECONDS, _LOG_SECONDS = 0.25, 10.0


@contextlib.contextmanager
def open_output(out: Path | None) -> Iterator[TextIO]:
    """The stream for the verdicts; a regular file gets its name only at the end."""
    if out is None:
        yield sys.stdout
        return
    out = Path(os.path.realpath(out))  # a link stays one
    if out.exists() and not out.is_file():  # a device or a pipe has no contents to replace
        with _open(out, out) as file:
            yield file
        return
    # Of this process alone: two runs with one --out must not write into each other's file.
    part = out.with_name(f"{out.name}.{os.getpid()}.part")
    with _open(part, out) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(part, out)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def check_output(out: Path | None, pairs: Path, databases: Path | None) -> None:
    """Raises UserError if the verdicts would be written over the pairs or among the databases."""
    if out is None:
        return
    if out.exists() and pairs.exists() and out.samefile(pairs):
        raise UserError(f"--out {out} is the file of the pairs; name another")
    if databases is not None and out.resolve().is_relative_to(databases.resolve()):
        raise UserError(f"--out {out} lies among the databases; name another place")


def _open(path: Path, out: Path) -> TextIO:
    try:
        return open(path, "w", encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"--out {out} cannot be written ({error.strerror}); name a file in a folder"
            " that is there and may be written to"
        ) from None


def is_terminal(stream: TextIO) -> bool:
    """Whether a person looks at the stream."""
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


@contextlib.contextmanager
def live_progress(
    phase: str, total: int, *, shown: bool
) -> Iterator[Callable[[int, dict[str, float]], None]]:
    """What shows on standard error how many are done, with metrics, when it is time to."""
    if not shown:
        yield lambda done, metrics: None
        return
    live = is_terminal(sys.stderr)
    pause = _TERMINAL_SECONDS if live else _LOG_SECONDS
    due = time.monotonic() + pause
    # The panel takes sys.stdout over, but only by name: the verdicts' stream is already chosen.
    with Progress(total, stream=sys.stderr) as progress:
        progress.phase(phase, total)

        def show(done: int, metrics: dict[str, float]) -> None:
            nonlocal due
            if time.monotonic() >= due or (live and done == total):
                progress.step(done, metrics)
                due = time.monotonic() + pause

        yield show


def note(text: str) -> None:
    """One line on standard error."""
    with contextlib.suppress(OSError):  # nobody listens; the verdicts say it too
        print(f"note: {text}", file=sys.stderr, flush=True)
