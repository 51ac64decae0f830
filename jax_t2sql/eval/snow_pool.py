"""Queries on Snowflake: run, compared, and translated where a model only looks at the data.

What the rest of an evaluation asks of a `GradingPool` is answered by `SnowPool`, on threads: the
work is Snowflake's. Only SELECT statements are sent.
"""

import asyncio
import datetime
import decimal
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from jax_t2sql.errors import UserError
from jax_t2sql.eval.snow_schema import read_snow_doc, snow_names
from jax_t2sql.eval.snow_sql import exploratory_forms, refusal
from jax_t2sql.grading import AssessJob, Assessment, GradeJob, Verdict
from jax_t2sql.grading.soft_f1 import soft_f1
from jax_t2sql.grading.verdict import gold_fault, judge
from jax_t2sql.sql import Limits, Outcome, parse_mode

_OPTIONS = (
    "account", "user", "password", "role", "warehouse", "authenticator", "token",
    "private_key_file", "private_key_file_pwd",
)  # fmt: skip
_FETCHED = 1_000  # rows at a time
_INVALID = ("does not exist", "invalid identifier", "syntax error", "compilation error")


def credentials(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """How to connect: SNOWFLAKE_ACCOUNT, SNOWFLAKE_USER and what else of that kind is set.

    Raises:
      UserError: account or user is not set.
    """
    found = {
        name: value
        for name in _OPTIONS
        if (value := environment.get(f"SNOWFLAKE_{name.upper()}", "").strip())
    }
    missing = [f"SNOWFLAKE_{name.upper()}" for name in ("account", "user") if name not in found]
    if missing:
        raise UserError(
            f"queries run on Snowflake, and {' and '.join(missing)} is not set; set it, with"
            " SNOWFLAKE_PASSWORD or SNOWFLAKE_PRIVATE_KEY_FILE, and SNOWFLAKE_WAREHOUSE"
        )
    return found


class SnowPool:
    """Runs and compares queries on an account; a context manager.

    A database is named by the folder that describes it (`snow_schema.find_snow_database`).

    Raises:
      UserError: no credentials, no connector, or the account refuses them.
    """

    def __init__(self, workers: int, *, limits: Limits) -> None:
        try:
            import snowflake.connector
        except ImportError:
            raise UserError(
                "the Snowflake connector is not installed; pip install 'jax_t2sql[snow]'"
            ) from None
        self._connector, self._credentials = snowflake.connector, credentials()
        self._limits, self._local = limits, threading.local()
        self._connections: list[Any] = []
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="snowflake")
        self._golds: dict[tuple[str, str], Future[Outcome]] = {}

    def execute(self, db_path: str | os.PathLike, sql: str) -> Future[Outcome]:
        """Runs a query in Snowflake's dialect, as it is."""
        return self._threads.submit(self._run, Path(db_path).name, sql)

    def assess_many(self, jobs: Sequence[AssessJob]) -> list[Assessment]:
        """See `GradingPool.assess_many`."""
        preds = {(str(j.db_path), j.pred_sql): None for j in jobs}
        found = {key: self.execute(*key) for key in preds}
        golds = [self._gold(str(job.db_path), job.gold_sql) for job in jobs]
        return [
            _assess(job, gold.result(), found[str(job.db_path), job.pred_sql].result())
            for job, gold in zip(jobs, golds, strict=True)
        ]

    def grade_many(self, jobs: Sequence[GradeJob]) -> list[Verdict]:
        """See `GradingPool.grade_many`."""
        asked = [
            AssessJob(
                job.db_path,
                job.gold_sql,
                job.pred_sql,
                (parse_mode(job.mode) if isinstance(job.mode, str | None) else job.mode,),
            )
            for job in jobs
        ]
        return [assessment.verdicts[0] for assessment in self.assess_many(asked)]

    def _gold(self, db_path: str, sql: str) -> Future[Outcome]:
        key = (db_path, sql)
        if key not in self._golds:
            self._golds[key] = self.execute(db_path, sql)
        return self._golds[key]

    def explore(self, db_path: str | os.PathLike, sql: str) -> Future[Outcome]:
        """Runs a query that looks at the data, in SQLite's dialect or Snowflake's."""
        return self._threads.submit(self._explore, Path(db_path), sql)

    def _explore(self, folder: Path, sql: str) -> Outcome:
        first = None
        for form in exploratory_forms(sql, snow_names(read_snow_doc(folder))):
            outcome = self._run(folder.name, form)
            if outcome.ok:
                return outcome
            first = first or outcome
            if not any(words in outcome.message.lower() for words in _INVALID):
                break  # another spelling would meet the same
        return first

    def _run(self, database: str, sql: str) -> Outcome:
        """Runs one query, whatever becomes of it.

        Raises:
          UserError: it is not the query's fault: Snowflake cannot be reached.
        """
        reason = refusal(sql)
        if reason is not None:
            return Outcome("no_query" if reason.startswith("there") else "refused", message=reason)
        started = time.monotonic()
        try:
            with self._connection(database).cursor() as cursor:
                seconds = max(1, round(self._limits.seconds))
                cursor.execute(sql, timeout=seconds)
                return self._fetched(cursor, started)
        except self._connector.errors.Error as error:
            spent = time.monotonic() - started
            message = str(getattr(error, "msg", None) or error).strip()
            # What is wrong with a query is a ProgrammingError or another DatabaseError.
            faults = self._connector.errors
            if isinstance(error, faults.OperationalError | faults.InterfaceError):
                raise UserError(
                    f"Snowflake does not answer: {message}. Mend that, then run the same command"
                ) from None
            # 604: cancelled, 630: over the statement's time limit.
            late = getattr(error, "errno", None) in (604, 630) or spent >= self._limits.seconds
            status = "timeout" if late else "error"
            return Outcome(status, message=message, seconds=spent)

    def _fetched(self, cursor: Any, started: float) -> Outcome:
        rows, size, limits = [], 0, self._limits
        while batch := cursor.fetchmany(_FETCHED):
            for row in batch:
                rows.append(tuple(_cell(value) for value in row))
                size += sum(8 + (len(v) if isinstance(v, str | bytes) else 0) for v in rows[-1])
            if len(rows) > limits.max_rows or size > limits.max_bytes:
                told = f"more than {limits.max_rows:,} rows or {limits.max_bytes:,} bytes"
                return Outcome("too_large", message=told, seconds=time.monotonic() - started)
        columns = tuple(column[0] for column in cursor.description or ())
        seconds = time.monotonic() - started
        return Outcome("ok", columns, rows, seconds=seconds, size=size)

    def _connection(self, database: str) -> Any:
        """This thread's connection to a database."""
        known = self._local.__dict__.setdefault("connections", {})
        if database not in known:
            try:
                known[database] = self._connector.connect(**self._credentials, database=database)
            except self._connector.errors.DatabaseError as error:
                raise UserError(f"Snowflake refuses the connection: {error}") from None
            self._connections.append(known[database])
        return known[database]

    def close(self) -> None:
        """Ends all connections; queries that wait are dropped."""
        self._threads.shutdown(cancel_futures=True)
        while self._connections:
            self._connections.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Exploration:
    """What policies see of a `SnowPool`: their queries look at the data and are translated."""

    def __init__(self, pool: SnowPool) -> None:
        self._pool = pool

    def execute(self, db_path: str | os.PathLike, sql: str) -> Future[Outcome]:
        """See `SnowPool.explore`."""
        return self._pool.explore(db_path, sql)

    async def execute_async(self, db_path: str | os.PathLike, sql: str) -> Outcome:
        """`execute`, awaited."""
        return await asyncio.wrap_future(self.execute(db_path, sql))


def _assess(job: AssessJob, gold: Outcome, pred: Outcome) -> Assessment:
    fault = gold_fault(gold)
    if fault is not None:
        return Assessment((fault,) * len(job.modes), None)
    verdicts = tuple(judge(gold, pred, mode) for mode in job.modes)
    return Assessment(verdicts, soft_f1(gold.rows, pred.rows) if pred.ok else 0.0)


def _cell(value: Any) -> int | float | str | bytes | None:
    """A value as SQLite has it: booleans are 0 and 1, dates are text."""
    if value is None or isinstance(value, str | bytes):
        return value
    if isinstance(value, bool | int):
        return int(value)
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return str(value)
    if isinstance(value, bytearray):
        return bytes(value)
    try:
        return float(value)
    except (TypeError, ValueError):
        return json.dumps(value, default=str)
