"""A pool of processes that run and grade SQL.

Not `concurrent.futures.ProcessPoolExecutor`: that gives up as a whole when one worker dies, and can
neither kill one that is stuck nor start it again.
"""

import asyncio
import os
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Self

from jax_t2sql.errors import UserError
from jax_t2sql.grading.memo import VerdictMemo
from jax_t2sql.grading.memory import worker_memory
from jax_t2sql.grading.requests import CheckGold, Execute, Grade, Request, Settings
from jax_t2sql.grading.seat import Seat, shut_down
from jax_t2sql.grading.tasks import Task, TaskQueue
from jax_t2sql.grading.verdict import Verdict
from jax_t2sql.sql import (
    GoldFiles,
    Limits,
    Mode,
    Outcome,
    parse_mode,
    results_equal,
    split_statement,
)
from jax_t2sql.sql.compare import ColumnOrder
from jax_t2sql.sql.database import file_identity
from jax_t2sql.sql.sandbox import MAX_SQL_CHARS


@dataclass(frozen=True)
class GradeJob:
    """A prediction to grade: database file, gold query, predicted query, mode (text or Mode)."""

    db_path: str | os.PathLike
    gold_sql: str
    pred_sql: str
    mode: Mode | str | None = None


class GradingPool:
    """Processes that run queries and compare results, with futures for answers.

    Usable from any thread, and awaited. Each worker keeps databases open and gold results at hand;
    verdicts on predictions that come again are remembered. A query that does not heed its time
    limit is killed with its worker less than a second later; a worker that dies is replaced, and
    what it was doing is tried once more. Nothing outlives `close` (or the end of a `with` block):
    no process, thread or handle.

    >>> with GradingPool(workers=2) as pool:  # doctest: +SKIP
    ...     pool.grade("shop.sqlite", "SELECT 1", "SELECT 1.0", "set").result().status
    'equal'
    """

    def __init__(
        self,
        workers: int = 2,
        *,
        limits: Limits | None = None,
        gold_limits: Limits | None = None,
        column_order: ColumnOrder = "position",
        rel_tol: float = 1e-9,
        memory_bytes: int | None = None,
        gold_folder: str | os.PathLike | None = None,
        max_waiting: int = 10_000,
    ) -> None:
        """Starts the workers; they get ready while the caller goes on.

        Args:
          workers: number of processes.
          limits: of each query. A prediction may in any case give twice what its gold gives.
          gold_limits: of gold queries; by default four times as wide.
          column_order: "any" lets predicted columns stand in another order, in all modes but bird.
          rel_tol: relative tolerance between two numbers of which one is REAL; not under bird.
          memory_bytes: address space a worker may have; SQLite itself may take half of it. A query
            that needs more is too large. By default what `memory.worker_memory` allots.
          gold_folder: keep the results of gold queries there, for other runs too.
          max_waiting: requests that may wait for a worker; who comes with more waits as well.

        Raises:
          ValueError: there would be no worker, or no room.
          UserError: the folder cannot be made, or comparing would not accept the options.
        """
        results_equal([], [], "set", rel_tol=rel_tol, column_order=column_order)  # checks them
        for name, value in (("workers", workers), ("max_waiting", max_waiting)):
            if value < 1:
                raise ValueError(f"{name} is {value}; a grading pool needs at least 1")
        limits = limits or Limits()
        memory_bytes = memory_bytes or worker_memory(workers)
        gold_limits = gold_limits or _wider(limits, memory_bytes)
        if gold_folder is not None:
            gold_folder = _absolute(gold_folder)
            GoldFiles(gold_folder, limits=gold_limits)  # now, and told to the caller, if it fails
        settings = Settings(limits, gold_limits, column_order, memory_bytes, gold_folder, rel_tol)
        self._memo = VerdictMemo()
        self._tasks = TaskQueue(capacity=max_waiting, takers=workers)
        self._seats = [Seat(settings, self._tasks) for _ in range(workers)]
        # The threads know nothing of the pool, so one that is dropped unclosed is collected, and
        # closed by this; at the interpreter's end too.
        self._finish = weakref.finalize(self, shut_down, self._tasks, self._seats)

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
        request = _grade(_absolute(db_path), gold_sql, pred_sql, mode)
        identity = _identity(request.path)
        known = self._memo.get(identity, request)
        if known:
            future: Future[Verdict] = Future()
            future.set_result(known)
            return future
        future = self._submit(request)
        memo = self._memo

        def remember(done: Future[Verdict]) -> None:
            if not done.cancelled() and not done.exception():
                memo.put(identity, request, done.result())

        future.add_done_callback(remember)
        return future

    async def execute_async(self, db_path: str | os.PathLike, sql: str) -> Outcome:
        """`execute`, awaited; where too many requests wait, without holding up the event loop."""
        return await self._awaited(lambda: self.execute(db_path, sql))

    async def grade_async(
        self,
        db_path: str | os.PathLike,
        gold_sql: str,
        pred_sql: str,
        mode: Mode | str | None = None,
    ) -> Verdict:
        """`grade`, awaited; cancelled, it is not done if it has not begun."""
        return await self._awaited(lambda: self.grade(db_path, gold_sql, pred_sql, mode))

    def check_gold(
        self, db_path: str | os.PathLike, gold_sql: str, mode: Mode | str | None = None
    ) -> Future[Verdict]:
        """Grades a gold query against itself: "equal" if a question can be graded with it."""
        return self._submit(CheckGold(_absolute(db_path), gold_sql, _mode(mode)))

    def grade_many(self, jobs: Sequence[GradeJob]) -> list[Verdict]:
        """Grades many predictions and waits.

        Jobs that are alike in all parts are graded once; comments, blanks and semicolons around the
        predicted statement are no difference.
        """
        paths = {path: _absolute(path) for path in {job.db_path for job in jobs}}
        requests = [_grade(paths[j.db_path], j.gold_sql, j.pred_sql, j.mode) for j in jobs]
        identities = {path: _identity(path) for path in paths.values()}
        verdicts: dict[Grade, Verdict] = {}
        tasks: dict[Grade, Task] = {}
        # Predictions for one gold come together, so that mostly one worker alone needs its result.
        for request in sorted(dict.fromkeys(requests), key=lambda r: (r.path, r.gold_sql)):
            known = self._memo.get(identities[request.path], request)
            if known:
                verdicts[request] = known
            else:
                tasks[request] = Task(request)
        self._tasks.put(tasks.values())
        for request, task in tasks.items():
            verdicts[request] = verdict = task.future.result()
            self._memo.put(identities[request.path], request, verdict)
        return [verdicts[request] for request in requests]

    def close(self) -> None:
        """Ends all workers now. Futures that wait are cancelled; one that runs gets a RuntimeError.

        Idempotent.
        """
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
        task = Task(request)
        self._tasks.put([task])
        return task.future

    async def _awaited(self, submit: Callable[[], Future]) -> Outcome | Verdict:
        future = await asyncio.to_thread(submit) if self._tasks.full else submit()
        return await asyncio.wrap_future(future)


def _wider(limits: Limits, memory_bytes: int) -> Limits:
    """Limits for gold queries, of which a worker can hold several results at once."""
    wider = limits.times(4)
    return replace(wider, max_bytes=max(limits.max_bytes, min(wider.max_bytes, memory_bytes // 8)))


def _identity(path: str) -> tuple[int, ...] | None:
    """The file's identity; None for one that is missing, whose verdicts are never repeatable."""
    try:
        return file_identity(path)
    except UserError:
        return None


def _grade(path: str, gold_sql: str, pred_sql: str, mode: Mode | str | None) -> Grade:
    if len(pred_sql) <= MAX_SQL_CHARS:
        statement, rest = split_statement(pred_sql)
        pred_sql = pred_sql if rest else statement
    return Grade(path, gold_sql, pred_sql, _mode(mode))


def _absolute(path: str | os.PathLike) -> str:
    return os.path.abspath(path)


def _mode(mode: Mode | str | None) -> Mode:
    return mode if isinstance(mode, Mode) else parse_mode(mode)
