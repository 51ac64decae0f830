"""Checking in a worker whether a query whose result matched is equivalent to the gold query.

The checker and what it needs (query trees, a solver) are imported when the first pair comes: a pool
that only grades starts without them.
"""

import os
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING

from jax_t2sql.errors import UserError
from jax_t2sql.grading.requests import CheckEquivalence, EquivalenceRule
from jax_t2sql.sql import Mode
from jax_t2sql.sql.tokens import significant, split_statement

if TYPE_CHECKING:
    from jax_t2sql.equivalence import Verdict

# A check minds its processor time itself. Where the machine is busy that takes longer by the clock;
# beyond this it is stuck.
_PATIENCE, _PATIENCE_SECONDS = 4.0, 5.0


def equivalence_request(
    gold_sql: str,
    pred_sql: str,
    schema: str | os.PathLike,
    database: str | os.PathLike | None,
    mode: Mode,
    rule: EquivalenceRule | None,
) -> CheckEquivalence:
    """The request for one pair; a schema that is no DDL is the path of the database.

    Raises:
      UserError: perturbation is asked for, and there is no database to perturb.
    """
    rule = rule or EquivalenceRule()
    is_ddl = isinstance(schema, str) and any(t.is_word("CREATE") for t in significant(schema))
    if not is_ddl:
        database = schema if database is None else database
        schema = os.path.abspath(schema)
    if database is None and rule.method == "perturbation":
        raise UserError("perturbation needs a real database; give one, or use the check instead")
    database = None if database is None else os.path.abspath(database)
    return CheckEquivalence(gold_sql, pred_sql, mode, os.fspath(schema), database, rule)


def seconds_until_stuck(request: CheckEquivalence) -> float:
    """By the clock, after which a worker that is at this request is killed."""
    return _PATIENCE * request.rule.seconds + _PATIENCE_SECONDS


def load_checker() -> None:
    """Imports all that a check needs."""
    import jax_t2sql.equivalence  # noqa: F401


def run_check(request: CheckEquivalence) -> "Verdict":
    """Checks one pair, in this process.

    Raises:
      UserError: the schema or the database cannot be read.
    """
    from jax_t2sql.equivalence import Budget, check, check_perturbed

    rule = request.rule
    if rule.method == "perturbation":
        return check_perturbed(
            request.gold_sql,
            request.pred_sql,
            request.database,
            grading=request.mode,
            copies=rule.copies,
            seconds=rule.seconds,
        )
    return check(
        request.gold_sql,
        request.pred_sql,
        request.schema,
        grading=request.mode,
        budget=Budget(seconds=rule.seconds, bound=rule.bound),
        database=request.database,
        strictness=rule.strictness,
    )


def unknown(reason: str) -> "Verdict":
    """A verdict on a pair whose check came to no end."""
    from jax_t2sql.equivalence import unknown

    return unknown(reason)


def canonical(sql: str) -> tuple[str, ...]:
    """What of a query's text matters: without comments, layout, case of bare names, final ";".

    Texts and names in quotes stay as they are.

    >>> canonical("select A -- why") == canonical("SELECT a;")
    True
    """
    statement, rest = split_statement(sql)
    if rest:  # more than one statement: refused whatever it means
        return (sql,)
    return tuple(
        token.text.lower() if token.kind == "name" else token.text
        for token in significant(statement)
    )


def pair_key(request: CheckEquivalence, identity: object) -> tuple:
    """What two requests share whose verdict is the same.

    Args:
      identity: of the schema, or of the database file.
    """
    gold, pred = canonical(request.gold_sql), canonical(request.pred_sql)
    return identity, gold, pred, request.mode, request.rule


@dataclass(frozen=True)
class CacheCounts:
    """How often verdicts on pairs were asked for, and how often they were known or being found."""

    asked: int = 0
    known: int = 0


class PairChecks:
    """Checks of pairs, each asked for once: those that run, and the verdicts found last.

    Any thread may ask.
    """

    def __init__(self, *, most: int = 20_000) -> None:
        """Keeps so many verdicts at most."""
        self._verdicts: OrderedDict[tuple, Verdict] = OrderedDict()
        self._running: dict[tuple, Future] = {}
        self._most = most
        self._lock = Lock()
        self._asked = self._known = 0

    @property
    def counts(self) -> CacheCounts:
        """Since the start."""
        with self._lock:
            return CacheCounts(self._asked, self._known)

    def ask(self, key: tuple, begin: Callable[[], Future]) -> Future:
        """The verdict known or being found under a key, which then costs no time; else the one of
        the check that `begin` starts."""
        again: Future = Future()
        with self._lock:
            self._asked += 1
            known, running = self._verdicts.get(key), self._running.get(key)
            self._known += known is not None or running is not None
            if known is not None:
                self._verdicts.move_to_end(key)
        if known is not None:
            again.set_result(replace(known, cpu_seconds=0.0))
            return again
        if running is not None:
            running.add_done_callback(lambda done: _hand_on(done, again))
            return again
        future = begin()  # may wait for room, so not under the lock
        with self._lock:
            self._running[key] = future
        future.add_done_callback(lambda done: self._keep(key, done))
        return future

    def _keep(self, key: tuple, done: Future) -> None:
        failed = done.cancelled() or done.exception() is not None
        with self._lock:
            self._running.pop(key, None)
            # What came to no end (no time spent in a worker) may have been the machine's fault.
            if not failed and done.result().cpu_seconds > 0:
                self._verdicts[key] = done.result()
                if len(self._verdicts) > self._most:
                    self._verdicts.popitem(last=False)


def _hand_on(done: Future, to: Future) -> None:
    if done.cancelled():
        to.cancel()
    elif (error := done.exception()) is not None:
        to.set_exception(error)
    else:
        to.set_result(replace(done.result(), cpu_seconds=0.0))
