"""One worker process as its owner sees it: started, asked, timed, killed.

A new interpreter, never a fork: the owner may have threads of jax that a fork would freeze while
they hold locks. Started by a plain command, so nothing of the owner's main module runs again,
whether that is a script, a module, standard input or a test runner.
"""

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import jax_t2sql
from jax_t2sql.grading.requests import Request, Settings, Stage, Started

# Between a query's own time limit and the kill: for a query that is stuck inside one SQLite step.
GRACE_SECONDS = 0.7
_START_SECONDS = 60.0

# The owner's copy of the package, whatever directory either process was started in.
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv.pop(1));"
    " from jax_t2sql.grading.worker import main; main()"
)


class WorkerDied(Exception):
    """The process ended without an answer."""


class WorkerStuck(Exception):
    """No answer within the time limit and its grace; `stage` says of what."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.stage = stage


class WorkerProcess:
    """A running worker. Not thread-safe, except for `kill`."""

    def __init__(self, settings: Settings) -> None:
        """Starts the process and returns at once."""
        self._settings = settings
        self._limit = settings.limits.seconds + GRACE_SECONDS
        self._connection, theirs = multiprocessing.Pipe()
        root = str(Path(jax_t2sql.__file__).resolve().parents[1])
        command = [sys.executable, "-P", "-c", _BOOT, root, str(theirs.fileno()), str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # Out of the terminal's foreground group: Ctrl-C is the owner's to handle, from the
                # worker's first instruction on.
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
        raise WorkerDied(f"exit status {self._status()}")

    def ask(self, request: Request):
        """Sends a request and returns its answer.

        Raises:
          WorkerDied, WorkerStuck: the process is of no more use; close it.
        """
        self._send(request)
        stage: Stage = "prediction"
        deadline = time.monotonic() + self._limit
        try:
            while self._connection.poll(max(deadline - time.monotonic(), 0)):
                answer = self._connection.recv()
                if not isinstance(answer, Started):
                    return answer
                stage = answer.stage
                deadline = time.monotonic() + self._limit
        except (EOFError, OSError):
            raise WorkerDied(f"exit status {self._status()}") from None
        raise WorkerStuck(stage)

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
            raise WorkerDied(f"exit status {self._status()}") from None

    def _status(self) -> int | None:
        """Exit status (negative: the signal), None while it still runs."""
        try:
            return self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return None
