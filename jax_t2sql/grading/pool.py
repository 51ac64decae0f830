"""A pool of processes that run and grade SQL.

Not `concurrent.futures.ProcessPoolExecutor`: that gives up as a whole when one worker dies, and can
neither kill one that is stuck nor start it again.
"""

import os
import queue
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Self

from jax_t2sql.grading.requests import CheckGold, Execute, Grade, Request, Settings
from jax_t2sql.grading.seat import Seat, Task, shut_down
from jax_t2sql.grading.verdict import Verdict
from jax_t2sql.sql import Limits, Mode, Outcome, parse_mode
from jax_t2sql.sql.compare import ColumnOrder


@dataclass(frozen=True)
class GradeJob:
    """A prediction to grade: database file, gold query, predicted query, mode (text or Mode)."""

    db_path: str | os.PathLike
    gold_sql: str
    pred_sql: str
    mode: Mode | str | None = None


class GradingPool:
    """Processes that run queries and compare results, with futures for answers.

    Usable from any thread. Each worker keeps databases open and gold results at hand. A query that
    does not heed its time limit is killed with its worker less than a second later; a worker that
    dies is replaced, and what it was doing is tried once more. Nothing outlives `close` (or the end
    of a `with` block): no process, thread or handle.

    >>> with GradingPool(workers=2) as pool:  # doctest: +SKIP
    ...     pool.grade("shop.sqlite", "SELECT 1", "SELECT 1.0", "set").result().status
    'equal'
    """

    def __init__(
        self,
        workers: int = 2,
        *,
        limits: Limits | None = None,
        column_order: ColumnOrder = "position",
        memory_bytes: int = 4 * 2**30,
    ) -> None:
        """Starts the workers; they get ready while the caller goes on.

        Args:
          workers: number of processes.
          limits: of each query; gold queries too.
          column_order: "any" lets predicted columns stand in another order, in all modes but bird.
          memory_bytes: address space a worker may have; SQLite itself may take half of it. A query
            that needs more is too large.
        """
        if workers < 1:
            raise ValueError(f"workers is {workers}; a grading pool needs at least 1")
        settings = Settings(limits or Limits(), column_order, memory_bytes)
        self._lock = threading.Lock()  # so that no task is put into the queue of a closed pool
        self._closed = False
        self._queue: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._seats = [Seat(settings, self._queue) for _ in range(workers)]
        # The threads know nothing of the pool, so one that is dropped unclosed is collected, and
        # closed by this; at the interpreter's end too.
        self._finish = weakref.finalize(self, shut_down, self._queue, self._seats)

    def execute(self, db_path: str | os.PathLike, sql: str) -> Future[Outcome]:
        """Runs a query. The future raises UserError for a database that cannot be opened."""
        return self._submit(Execute(_absolute(db_path), sql))

    def grade(
        self,
        db_path: str | os.PathLike,
        gold_sql: str,
        pred_sql: str,
        mode: Mode | str | None = None,
    ) -> Future[Verdict]:
        """Grades a predicted query. The future always gives a verdict; at once UserError for a
        mode that is none."""
        return self._submit(Grade(_absolute(db_path), gold_sql, pred_sql, _mode(mode)))

    def check_gold(
        self, db_path: str | os.PathLike, gold_sql: str, mode: Mode | str | None = None
    ) -> Future[Verdict]:
        """Grades a gold query against itself: "equal" if a question can be graded with it."""
        return self._submit(CheckGold(_absolute(db_path), gold_sql, _mode(mode)))

    def grade_many(self, jobs: Sequence[GradeJob]) -> list[Verdict]:
        """Grades many predictions and waits. Jobs that are alike in all parts are graded once."""
        requests = [
            Grade(_absolute(job.db_path), job.gold_sql, job.pred_sql, _mode(job.mode))
            for job in jobs
        ]
        futures = {request: self._submit(request) for request in dict.fromkeys(requests)}
        return [futures[request].result() for request in requests]

    def close(self) -> None:
        """Ends all workers now. Futures that wait are cancelled; one that runs gets a RuntimeError.

        Idempotent.
        """
        with self._lock:
            self._closed = True
        self._finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc) -> None:
        self.close()

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the running workers."""
        return [pid for seat in self._seats if (pid := seat.pid) is not None]

    def _submit(self, request: Request) -> Future:
        task = Task(request, Future())
        with self._lock:
            if self._closed:
                raise RuntimeError("this grading pool is closed; make a new one")
            self._queue.put(task)
        return task.future


def _absolute(path: str | os.PathLike) -> str:
    return os.path.abspath(path)


def _mode(mode: Mode | str | None) -> Mode:
    return mode if isinstance(mode, Mode) else parse_mode(mode)
