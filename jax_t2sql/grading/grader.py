"""Answers requests in a worker process, keeping databases open and gold results at hand."""

import traceback
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from jax_t2sql.errors import UserError
from jax_t2sql.grading.equivalence import load_checker, run_check, unknown
from jax_t2sql.grading.requests import (
    Assess,
    CheckEquivalence,
    CheckGold,
    Execute,
    Failed,
    Grade,
    Probe,
    Request,
    Settings,
    Stage,
)
from jax_t2sql.grading.soft_f1 import soft_f1
from jax_t2sql.grading.verdict import (
    Assessment,
    Verdict,
    gold_fault,
    judge,
    judge_gold,
    machine_fault,
)
from jax_t2sql.sql import GoldFiles, GoldStore, Limits, Mode, Outcome, Sandbox, is_constant
from jax_t2sql.sql.database import file_identity
from jax_t2sql.sql.ties import order_warnings

if TYPE_CHECKING:
    from jax_t2sql.equivalence import Verdict as EquivalenceVerdict

_MAX_OPEN_DATABASES = 64
_NO_MEMORY = "SQLITE_NOMEM"
# Of a worker's memory, what goes to gold results: a tenth, at some 100 bytes a cell.
_MEMORY_PER_GOLD_CELL = 1_000
_MAX_GOLD_CELLS = 2_000_000


class Grader:
    """Not thread-safe. `begin` is called with the stage whenever a bounded piece of work begins."""

    def __init__(self, settings: Settings) -> None:
        self.begin: Callable[[Stage], None] = lambda stage: None
        self._settings = settings
        folder, limits = settings.gold_folder, settings.gold_limits
        self._gold_files = GoldFiles(folder, limits=limits) if folder else None
        self._golds = self._new_store()
        self._open: OrderedDict[str, tuple[tuple, Sandbox]] = OrderedDict()

    def _new_store(self) -> GoldStore:
        cells = min(_MAX_GOLD_CELLS, self._settings.memory_bytes // _MEMORY_PER_GOLD_CELL)
        return GoldStore(max_cells=cells, files=self._gold_files)

    def answer(
        self, request: Request
    ) -> "Outcome | Verdict | Assessment | EquivalenceVerdict | Failed":
        """The answer to any request. Raises nothing."""
        try:
            match request:
                case Execute(path, sql):
                    return self._run(path, sql, "prediction", self._settings.limits, warn=True)
                case Grade():
                    return self._grade(request)
                case Assess():
                    return self._assess(request)
                case CheckGold():
                    return self._check_gold(request)
                case CheckEquivalence():
                    load_checker()  # before the clock starts: the first time it takes a while
                    self.begin("equivalence")
                    return run_check(request)
                case Probe(path, gold_sql, verdict):
                    return self._unless_broken(path, gold_sql, verdict)
            raise TypeError(f"{type(request).__name__} is no request")
        except UserError as error:
            return Failed(str(error), is_users=True)
        except MemoryError:
            self._close_all()
            if isinstance(request, Execute):
                return Outcome("too_large", message="the result needs too much memory")
            if isinstance(request, CheckEquivalence):
                return unknown("the check needs too much memory")
            told = Verdict("too_large", "the results need too much memory to be compared")
            mode = request.modes[0] if isinstance(request, Assess) else request.mode
            graded = isinstance(request, Grade | Assess)
            return self._unless_unwinnable(request, mode, told) if graded else told
        except Exception as error:
            if isinstance(request, Grade | Assess):
                return self._after_exception(request, error)
            return Failed(traceback.format_exc(), is_users=False)

    def _grade(self, request: Grade) -> Verdict:
        gold = self._gold(request.path, request.gold_sql)
        fault = gold_fault(gold)
        if fault:
            return fault
        pred = self._predict(request, gold)
        return self._judge(request, request.mode, gold, pred)

    def _assess(self, request: Assess) -> Assessment:
        gold = self._gold(request.path, request.gold_sql)
        fault = gold_fault(gold)
        if fault:
            return Assessment((fault,) * len(request.modes), None)
        pred = self._predict(request, gold)
        verdicts = tuple(self._judge(request, mode, gold, pred) for mode in request.modes)
        if any(verdict.status == "infrastructure" for verdict in verdicts):
            return Assessment(verdicts, None)
        self.begin("comparison")
        return Assessment(verdicts, soft_f1(gold.rows, pred.rows) if pred.ok else 0.0)

    def _predict(self, request: Grade | Assess, gold: Outcome) -> Outcome:
        limits = self._settings.limits.with_room_for(gold)
        return self._run(request.path, request.pred_sql, "prediction", limits)

    def _judge(self, request: Grade | Assess, mode: Mode, gold: Outcome, pred: Outcome) -> Verdict:
        self.begin("comparison")
        settings = self._settings
        verdict = judge(
            gold,
            pred,
            mode,
            rel_tol=settings.rel_tol,
            column_order=settings.column_order,
        )
        if pred.status == "timeout" or machine_fault(pred):
            return self._unless_broken(request.path, request.gold_sql, verdict)
        if pred.code == _NO_MEMORY:
            return self._unless_unwinnable(request, mode, verdict)
        if (
            verdict.matches
            and is_constant(request.pred_sql, pred.reads)
            and not is_constant(request.gold_sql, gold.reads)
        ):
            return replace(verdict, constant=True)
        return verdict

    def _check_gold(self, request: CheckGold) -> Verdict:
        def run(sql: str) -> Outcome:
            return self._run(request.path, sql, "gold", self._settings.gold_limits)

        gold = self._gold(request.path, request.gold_sql)
        if not gold.ok:
            return judge_gold(gold, gold, request.mode)
        again = run(request.gold_sql)
        verdict = judge_gold(gold, again, request.mode, rel_tol=self._settings.rel_tol)
        if verdict.status != "equal":
            return verdict
        warnings = order_warnings(request.gold_sql, gold, request.mode, run)
        if gold.seconds > self._settings.limits.seconds:
            warnings += (
                f"the gold query itself takes {gold.seconds:.1f} s, and predictions may take"
                f" {self._settings.limits.seconds:g} s; raise the limit",
            )
        return replace(verdict, warnings=warnings)

    def _gold(self, path: str, sql: str) -> Outcome:
        run = partial(self._run, path, sql, "gold", self._settings.gold_limits)
        return self._golds.get(path, sql, run)

    def _unless_broken(self, path: str, gold_sql: str, verdict: Verdict) -> Verdict:
        """The verdict, unless the gold query, which has run before, no longer runs either.

        On a file opened anew, in the time that a prediction has (or twice what the gold has taken).
        """
        gold = self._gold(path, gold_sql)
        self._close(path)
        limits = self._settings.limits
        limits = replace(limits.with_room_for(gold), seconds=max(limits.seconds, 2 * gold.seconds))
        if gold.ok and self._run(path, gold_sql, "probe", limits).ok:
            return verdict
        detail = f"a query known to be good fails now too; the prediction: {verdict.detail}"
        return Verdict("infrastructure", detail, verdict.seconds)

    def _unless_unwinnable(self, request: Grade | Assess, mode: Mode, verdict: Verdict) -> Verdict:
        """The verdict, unless there is no memory for the gold's own answer beside the gold."""
        self._close_all()
        try:
            gold = self._gold(request.path, request.gold_sql)
            again = self._run(request.path, request.gold_sql, "gold", self._settings.gold_limits)
            own = judge_gold(gold, again, mode, rel_tol=self._settings.rel_tol)
            if own.status in ("equal", "gold_empty"):
                return verdict
            detail = own.detail
        except MemoryError:
            detail = "they need too much memory"
        self._close_all()
        return Verdict("gold_error", f"not even two gold results can be compared: {detail}")

    def _after_exception(self, request: Grade | Assess, error: Exception) -> Verdict | Failed:
        """A fault in this code that one prediction meets and the gold does not is no excuse."""
        told = Verdict("error", f"{type(error).__name__}: {error}")
        try:
            return self._unless_broken(request.path, request.gold_sql, told)
        except Exception:
            return Failed(traceback.format_exc(), is_users=False)

    def _run(
        self, path: str, sql: str, stage: Stage, limits: Limits, *, warn: bool = False
    ) -> Outcome:
        self.begin(stage)
        outcome = self._sandbox(path).execute(sql, limits=limits, warn=warn)
        if outcome.code == _NO_MEMORY and outcome.seconds < limits.seconds / 2:
            # The pages that other databases keep at hand count too, and are no fault of the query.
            self._close_all()
            outcome = self._sandbox(path).execute(sql, limits=limits, warn=warn)
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
        self._golds = self._new_store()
