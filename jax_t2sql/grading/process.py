"""One worker process as its owner sees it: started, given work, watched, killed.

A new interpreter, never a fork: the owner may have threads of jax that a fork would freeze while
they hold locks. Started by a plain command, so nothing of the owner's main module runs again,
whether that is a script, a module, standard input or a test runner.
"""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax_t2sql
from jax_t2sql.grading.progress import Progress, Work, shared_memory
from jax_t2sql.grading.requests import LEFT_TO_OWNER, Request, Settings

_START_SECONDS = 60.0

# The owner's copy of the package, whatever directory either process was started in.
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv.pop(1));"
    " from jax_t2sql.grading.worker import main; main()"
)


class WorkerDied(Exception):
    """The process ended without an answer; `killed` if by a signal."""

    def __init__(self, status: int | None) -> None:
        super().__init__(f"exit status {status}")
        self.killed = status is not None and status < 0


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """A process started within takes none of these signals before it says what to do with them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, LEFT_TO_OWNER)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class WorkerProcess:
    """A running worker. Not thread-safe, except for `kill`."""

    def __init__(self, settings: Settings) -> None:
        """Starts the process and returns at once."""
        self._settings = settings
        self._next = 1
        self._connection, theirs = multiprocessing.Pipe()
        root = str(Path(jax_t2sql.__file__).resolve().parents[1])
        try:
            with shared_memory() as memory:
                self._progress = Progress(memory)
                numbers = theirs.fileno(), memory, os.getpid()
                with _signals_held():
                    self._process = subprocess.Popen(
                        [sys.executable, "-P", "-c", _BOOT, root, *map(str, numbers)],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        pass_fds=[theirs.fileno(), memory],
                        # Out of the terminal's foreground group: Ctrl-C is the owner's to handle.
                        process_group=0,
                    )
        except BaseException:
            self._connection.close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def wait_ready(self) -> None:
        """Gives the process its settings and returns when it takes requests.

        Raises:
          WorkerDied: it does not.
        """
        self._send(self._settings)
        try:
            if self._connection.poll(_START_SECONDS):
                self._connection.recv()
                return
        except (EOFError, OSError):
            pass
        raise self.death()

    def send(self, requests: Sequence[Request]) -> int:
        """Gives the process a batch to answer in order; returns the first one's serial number.

        Raises:
          WorkerDied: it takes none any more.
        """
        first, self._next = self._next, self._next + len(requests)
        self._send((first, list(requests)))
        return first

    def receive(self, seconds: float) -> list[tuple[int, object]]:
        """Serial numbers and answers that have come; none if none comes within that time.

        Raises:
          WorkerDied: nothing will come any more.
        """
        try:
            return self._connection.recv() if self._connection.poll(seconds) else []
        except (EOFError, OSError):
            raise self.death() from None

    def work(self) -> Work:
        """What the process is at, or was when it ended."""
        return self._progress.now()

    def cut(self, serial: int) -> None:
        """Takes back the requests from this one on, except what has begun meanwhile."""
        self._progress.cut(serial)

    def kill(self) -> None:
        """Ends the process now. From any thread."""
        self._process.kill()

    def close(self) -> None:
        """Ends the process and frees all that it held here."""
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def _send(self, message: object) -> None:
        try:
            self._connection.send(message)
        except OSError:
            raise self.death() from None

    def death(self) -> WorkerDied:
        """What to raise for a process that has ended, or is about to."""
        try:
            return WorkerDied(self._process.wait(timeout=1))  # negative: the signal
        except subprocess.TimeoutExpired:
            return WorkerDied(None)
