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
from typing import TYPE_CHECKING, Self

from jax_t2sql.errors import UserError
from jax_t2sql.grading.equivalence import (
    CacheCounts,
    PairChecks,
    equivalence_request,
    pair_key,
)
from jax_t2sql.grading.memo import VerdictMemo
from jax_t2sql.grading.memory import worker_memory
from jax_t2sql.grading.requests import (
    Assess,
    CheckGold,
    EquivalenceRule,
    Execute,
    Grade,
    Request,
    Settings,
)
from jax_t2sql.grading.seat import Seat, shut_down
from jax_t2sql.grading.tasks import Task, TaskQueue
from jax_t2sql.grading.verdict import Assessment, Verdict
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

if TYPE_CHECKING:
    from jax_t2sql.equivalence import Verdict as EquivalenceVerdict


@dataclass(frozen=True)
class GradeJob:
    """A prediction to grade: database file, gold query, predicted query, mode (text or Mode)."""

    db_path: str | os.PathLike
    gold_sql: str
    pred_sql: str
    mode: Mode | str | None = None


@dataclass(frozen=True)
class AssessJob:
    """A prediction to compare with its gold in several modes, having run it once."""

    db_path: str | os.PathLike
    gold_sql: str
    pred_sql: str
    modes: tuple[Mode, ...]


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
          UserError: the folder cannot be made, the system has no room for so many processes, or
            comparing would not accept the options.
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
        self._checks = PairChecks()
        self._tasks = TaskQueue(capacity=max_waiting, takers=workers)
        self._seats = _start(workers, settings, self._tasks)
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

    def assess_many(self, jobs: Sequence[AssessJob]) -> list[Assessment]:
        """Compares many predictions, each in all the modes of its job, and waits.

        The verdicts are those that `grade_many` finds for each mode, at the price of one.
        """
        paths = {path: _absolute(path) for path in {job.db_path for job in jobs}}
        requests = [
            Assess(paths[j.db_path], j.gold_sql, _trimmed(j.pred_sql), j.modes) for j in jobs
        ]
        tasks = {
            request: Task(request)
            for request in sorted(dict.fromkeys(requests), key=lambda r: (r.path, r.gold_sql))
        }
        self._tasks.put(tasks.values())
        found = {request: task.future.result() for request, task in tasks.items()}
        for request, answer in found.items():
            if isinstance(answer, Verdict):  # stuck or dead in one mode: the others may do better
                singly = [
                    GradeJob(request.path, request.gold_sql, request.pred_sql, mode)
                    for mode in request.modes
                ]
                no_result = answer.status in ("gold_error", "infrastructure")
                verdicts = tuple(self.grade_many(singly))
                found[request] = Assessment(verdicts, None if no_result else 0.0)
        return [found[request] for request in requests]

    def check_equivalence(
        self,
        gold_sql: str,
        pred_sql: str,
        *,
        schema: str | os.PathLike,
        database: str | os.PathLike | None = None,
        mode: Mode | str | None = None,
        rule: EquivalenceRule | None = None,
    ) -> "Future[EquivalenceVerdict]":
        """Checks whether two queries are equivalent. For pairs whose results match.

        Verdicts are kept by the queries without layout and comments, by schema (or database file),
        mode and rule. A check that is stuck or takes its worker with it is "unknown".

        Args:
          schema: DDL, or the path of the database, which then is a source of rows, too.
          database: the real database, where the schema is DDL.
          rule: how to check; by default `EquivalenceRule()`.

        Returns: a future. It raises UserError where the schema or the database cannot be read.
        """
        request = equivalence_request(gold_sql, pred_sql, schema, database, _mode(mode), rule)
        identity = request.schema if request.database is None else _identity(request.database)
        key = pair_key(request, identity)
        return self._checks.ask(key, lambda: self._submit(request))

    @property
    def equivalence_cache(self) -> CacheCounts:
        """How many verdicts on pairs were asked for, and how many of them were known."""
        return self._checks.counts

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


def _start(workers: int, settings: Settings, tasks: TaskQueue) -> list[Seat]:
    """So many seats, or none and an error."""
    seats: list[Seat] = []
    try:
        for _ in range(workers):
            seats.append(Seat(settings, tasks))
    except (OSError, RuntimeError) as error:  # no descriptor, memory or process; no thread
        shut_down(tasks, seats)
        raise UserError(
            f"grading worker {len(seats) + 1} of {workers} cannot be started"
            f" ({getattr(error, 'strerror', None) or error}); ask for fewer, or raise the limit"
        ) from error
    return seats


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
    return Grade(path, gold_sql, _trimmed(pred_sql), _mode(mode))


def _trimmed(sql: str) -> str:
    """The statement without what surrounds it, so that predictions which are alike look so."""
    if len(sql) > MAX_SQL_CHARS:
        return sql
    statement, rest = split_statement(sql)
    return sql if rest else statement


def _absolute(path: str | os.PathLike) -> str:
    return os.path.abspath(path)


def _mode(mode: Mode | str | None) -> Mode:
    return mode if isinstance(mode, Mode) else parse_mode(mode)
