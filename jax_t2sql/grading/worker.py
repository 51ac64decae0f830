"""The process that runs and grades queries: one request at a time, warm databases, no jax.

Started by `jax_t2sql.grading.process`, never imported by a program. It speaks pickles over one
socket, ignores Ctrl-C, SIGTERM and SIGHUP (its parent decides), and ends when the socket closes or
the parent is gone.
"""

import contextlib
import os
import signal
import sqlite3
import sys
import threading
import time
from dataclasses import replace
from multiprocessing.connection import Connection

from jax_t2sql.grading.grader import Grader
from jax_t2sql.grading.progress import Progress
from jax_t2sql.grading.requests import LEFT_TO_OWNER
from jax_t2sql.sql import Outcome

_LOOK_SECONDS = 0.1


def main() -> None:
    """Serves the socket whose descriptor, with those of the shared memory and the owner's process
    id, is on the command line."""
    for ignored in LEFT_TO_OWNER:
        signal.signal(ignored, signal.SIG_IGN)
    descriptor, memory, parent = map(int, sys.argv[1:4])
    progress = Progress(memory)
    os.close(memory)
    with Connection(descriptor) as connection, contextlib.suppress(EOFError, OSError):
        outbox = _Outbox(connection)
        threading.Thread(target=_watch, args=(parent, outbox), daemon=True).start()
        settings = connection.recv()
        _bound_memory(settings.memory_bytes)
        grader = Grader(settings)
        connection.send("ready")
        while True:
            first, requests = connection.recv()
            for serial, request in enumerate(requests, first):
                if progress.is_cut(first, serial):
                    break
                grader.begin = lambda stage, serial=serial: progress.begin(serial, stage)
                outbox.add(serial, grader.answer(request))
            outbox.send()
    # Skips the slow tear-down of an interpreter that holds nothing worth saving.
    os._exit(0)


class _Outbox:
    """Answers on their way to the owner: sent when a batch is done, or has taken a while."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._answers: list[tuple[int, object]] = []

    def add(self, serial: int, answer: object) -> None:
        with self._lock:
            self._answers.append((serial, answer))

    def send(self) -> None:
        """Sends what there is."""
        with self._lock:
            answers, self._answers = self._answers, []
            if not answers:
                return
            try:
                self._connection.send(answers)
            except MemoryError:
                self._connection.send([(serial, _without_rows(a)) for serial, a in answers])


def _without_rows(answer: object) -> object:
    if not isinstance(answer, Outcome) or not answer.ok:
        return answer
    message = "the result needs too much memory to be handed over"
    return replace(answer, status="too_large", rows=(), message=message)


def _watch(parent: int, outbox: _Outbox) -> None:
    """Sends what a long query holds up; ends this process, in the middle of a query too, when its
    parent is gone.

    (The socket's end of file is seen only between requests, and a forked sibling may hold it open.
    Linux's parent-death signal would also strike when just the parent's starting thread ends.)
    """
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
        with contextlib.suppress(OSError, MemoryError):
            outbox.send()
    os._exit(0)


def _bound_memory(limit: int) -> None:
    """Caps the process, and SQLite within it: a memory bomb fails here, not in the machine."""
    with sqlite3.connect(":memory:") as connection:
        connection.execute(f"PRAGMA hard_heap_limit = {limit // 2}")
    connection.close()
    with contextlib.suppress(ImportError, ValueError, OSError):  # no such limit on some systems
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
