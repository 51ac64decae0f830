"""The process that runs and grades queries: one request at a time, warm databases, no jax.

Started by `jax_t2sql.grading.pool`, never imported by a program. It speaks pickles over one socket,
ignores Ctrl-C (its parent decides), and ends when the socket closes or the parent is gone.
"""

import contextlib
import os
import signal
import sqlite3
import sys
import threading
import time
import traceback
from collections import OrderedDict
from multiprocessing.connection import Connection

from jax_t2sql.errors import UserError
from jax_t2sql.grading.requests import (
    CheckGold,
    Execute,
    Failed,
    Grade,
    Request,
    Settings,
    Stage,
    Started,
)
from jax_t2sql.grading.verdict import Verdict, gold_fault, judge, judge_gold, machine_fault
from jax_t2sql.sql import GoldStore, Outcome, Sandbox
from jax_t2sql.sql.database import file_identity

_MAX_OPEN_DATABASES = 64
_PARENT_LOOKS_SECONDS = 0.5
# Comparing this many cells takes long enough to deserve a clock of its own.
_MANY_CELLS = 20_000


def main() -> None:
    """Serves the socket whose descriptor and whose owner's process id are on the command line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    with Connection(descriptor) as connection, contextlib.suppress(EOFError, OSError):
        settings = connection.recv()
        _bound_memory(settings.memory_bytes)
        connection.send(Started("gold"))
        worker = _Worker(settings, lambda stage: connection.send(Started(stage)))
        while True:
            connection.send(worker.answer(connection.recv()))
    # Skips the slow tear-down of an interpreter that holds nothing worth saving.
    os._exit(0)


def _leave_with(parent: int) -> None:
    """Ends this process, in the middle of a query too, when its parent is gone.

    (The socket's end of file is seen only between requests, and a forked sibling may hold it open.
    Linux's parent-death signal would also strike when just the parent's starting thread ends.)
    """
    while os.getppid() == parent:
        time.sleep(_PARENT_LOOKS_SECONDS)
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


class _Worker:
    """Answers requests, keeping databases open and gold results at hand."""

    def __init__(self, settings: Settings, started) -> None:
        self._settings = settings
        self._started = started
        self._golds = GoldStore()
        self._open: OrderedDict[str, tuple[tuple, Sandbox]] = OrderedDict()

    def answer(self, request: Request) -> Outcome | Verdict | Failed:
        try:
            match request:
                case Execute(path, sql):
                    return self._run(path, sql)
                case Grade():
                    return self._grade(request)
                case CheckGold():
                    return self._check_gold(request)
            raise TypeError(f"{type(request).__name__} is no request")
        except UserError as error:
            return Failed(str(error), is_users=True)
        except MemoryError:
            self._close_all()
            if isinstance(request, Execute):
                return Outcome("too_large", message="the result needs too much memory")
            return Verdict("too_large", "the results need too much memory to be compared")
        except Exception:
            return Failed(traceback.format_exc(), is_users=False)

    def _grade(self, request: Grade) -> Verdict:
        gold = self._gold(request.path, request.gold_sql)
        fault = gold_fault(gold)
        if fault:
            return fault
        pred = self._run(request.path, request.pred_sql, "prediction")
        if (pred.status == "timeout" or machine_fault(pred)) and not self._probe(request):
            detail = f"a query known to be good fails now too; the prediction: {pred.message}"
            return Verdict("infrastructure", detail, pred.seconds)
        if (len(gold.rows) + len(pred.rows)) * len(pred.columns) > _MANY_CELLS:
            self._started("comparison")
        return judge(gold, pred, request.mode, column_order=self._settings.column_order)

    def _check_gold(self, request: CheckGold) -> Verdict:
        gold = self._gold(request.path, request.gold_sql)
        if not gold.ok:
            return judge_gold(gold, gold, request.mode)
        return judge_gold(gold, self._run(request.path, request.gold_sql, "gold"), request.mode)

    def _gold(self, path: str, sql: str) -> Outcome:
        return self._golds.get(path, sql, lambda: self._run(path, sql, "gold"))

    def _probe(self, request: Grade) -> bool:
        """Whether the gold query, which has run before, still does: on a file opened anew."""
        self._close(request.path)
        return self._run(request.path, request.gold_sql, "probe").ok

    def _run(self, path: str, sql: str, stage: Stage | None = None) -> Outcome:
        if stage:
            self._started(stage)
        outcome = self._sandbox(path).execute(sql)
        if outcome.status in ("timeout", "too_large") or machine_fault(outcome):
            self._close(path)  # gives memory back; a damaged handle is not used again
        return outcome

    def _sandbox(self, path: str) -> Sandbox:
        identity = file_identity(path)
        known = self._open.get(path)
        if known and known[0] == identity:
            self._open.move_to_end(path)
            return known[1]
        self._close(path)
        sandbox = Sandbox(path, limits=self._settings.limits)
        self._open[path] = identity, sandbox
        if len(self._open) > _MAX_OPEN_DATABASES:
            self._open.popitem(last=False)[1][1].close()
        return sandbox

    def _close(self, path: str) -> None:
        if path in self._open:
            self._open.pop(path)[1].close()

    def _close_all(self) -> None:
        for path in list(self._open):
            self._close(path)
        self._golds = GoldStore()
