"""What becomes of a request whose worker had to be killed or died."""

from typing import TYPE_CHECKING

from jax_t2sql.errors import UserError
from jax_t2sql.grading.equivalence import unknown
from jax_t2sql.grading.requests import (
    Assess,
    CheckEquivalence,
    CheckGold,
    Execute,
    Failed,
    Grade,
    Probe,
    Request,
    Stage,
)
from jax_t2sql.grading.verdict import Verdict
from jax_t2sql.sql import Outcome

if TYPE_CHECKING:
    from jax_t2sql.equivalence import Verdict as EquivalenceVerdict


def when_stuck(
    request: Request, stage: Stage, seconds: float
) -> "Outcome | Verdict | EquivalenceVerdict | Probe":
    """For a worker that did not heed its limit: the answer, or a request that will find it."""
    detail = f"stopped after {seconds:g} s, stuck inside one step of SQLite"
    match request:
        case Execute():
            return Outcome("timeout", message=detail, seconds=seconds)
        case Probe():
            return Verdict("infrastructure", f"a query known to be good was {detail}")
        case CheckGold():
            return Verdict("gold_error", f"the gold query was {detail}")
        case CheckEquivalence():
            return unknown(f"the check was {detail}")
    match stage:
        case "gold":
            return Verdict("gold_error", f"the gold query was {detail}")
        case "probe":
            return Verdict("infrastructure", f"a query known to be good was {detail}")
        case "comparison":
            return Verdict("too_large", f"the results take more than {seconds:g} s to compare")
        case "prediction":
            return _probe(request, Verdict("timeout", detail, seconds))


def when_dead(
    request: Request, stage: Stage, cause: str
) -> "Outcome | Verdict | EquivalenceVerdict | Probe":
    """For a request that two workers did not survive: the answer, or a request that finds it."""
    detail = f"the process that ran this died twice ({cause})"
    match request:
        case Execute():
            return Outcome("error", message=detail)
        case Probe():
            return Verdict("infrastructure", detail)
        case CheckGold():
            return Verdict("gold_error", detail)
        case CheckEquivalence():
            return unknown(detail)
    if stage in ("gold", "probe"):
        return Verdict("infrastructure", detail)
    return _probe(request, Verdict("crashed", detail))


def _probe(request: Grade | Assess, verdict: Verdict) -> Probe:
    return Probe(request.path, request.gold_sql, verdict)


def unfailed(
    request: Request, answer: "Outcome | Verdict | EquivalenceVerdict | Failed"
) -> "Outcome | Verdict | EquivalenceVerdict":
    """The answer, with a failure in the worker raised or told as a verdict."""
    if not isinstance(answer, Failed):
        return answer
    if isinstance(request, CheckEquivalence) and not answer.is_users:
        # A fault in the checker must not end a training run; the traceback's last line names it.
        return unknown(f"the checker failed: {answer.message.strip().splitlines()[-1]}")
    if not isinstance(request, Execute | CheckEquivalence):
        return Verdict("infrastructure", answer.message)
    raise UserError(answer.message) if answer.is_users else RuntimeError(answer.message)
