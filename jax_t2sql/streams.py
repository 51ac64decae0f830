"""Where programs that judge files of pairs write: verdicts, progress, notes."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from jax_t2sql.errors import UserError
from jax_t2sql.progress import Progress
from jax_t2sql.whole_file import part_of, whole_file

# Between two lines of progress: a terminal draws over the last one, a log file keeps them all.
_TERMINAL_SECONDS, _LOG_SECONDS = 0.25, 10.0


def open_output(out: Path | None) -> contextlib.AbstractContextManager[TextIO]:
    """The stream for the verdicts; a regular file gets its name only at the end.

    Raises:
      UserError: it cannot be written, or another run writes it.
    """
    if out is not None:
        return whole_file(out)
    if sys.stdout is None:
        raise UserError("standard output is closed; open it, or name a file with --out")
    return contextlib.nullcontext(sys.stdout)


def check_output(out: Path | None, pairs: Path, databases: Path | None) -> None:
    """Raises UserError if the verdicts would be written over the pairs or the databases."""
    if out is None:
        return
    given = {"pairs": pairs} if databases is None else {"pairs": pairs, "databases": databases}
    for written in (out, part_of(out)):
        for name, path in given.items():
            if written.exists() and path.is_file() and written.samefile(path):
                raise UserError(f"--out {out} would write over --{name} {path}; name another")
    if databases is not None and out.resolve().is_relative_to(databases.resolve()):
        raise UserError(f"--out {out} lies among the databases; name another place")


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person looks at the stream; None is a closed one."""
    try:
        return stream is not None and stream.isatty()
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
