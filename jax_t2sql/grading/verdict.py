"""The verdict on one predicted query."""

from dataclasses import dataclass
from typing import Literal

from jax_t2sql.sql import Mode, Outcome, Undecided, distinct_rows, is_empty, results_equal
from jax_t2sql.sql.compare import ColumnOrder

VerdictStatus = Literal[
    "equal", "different",
    "timeout", "too_large", "error", "refused", "no_query", "crashed",
    "gold_error", "gold_empty", "infrastructure",
]  # fmt: skip

# Faults of the machine or the file, not of the query that met them.
_MACHINE_FAULTS = (
    "SQLITE_IOERR", "SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CANTOPEN", "SQLITE_FULL",
    "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL",
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """How a predicted query did.

    Attributes:
      status: "equal" or "different" results; the status of the prediction's failed execution;
        "crashed": two processes did not survive it, and the gold query runs as before;
        "gold_error" or "gold_empty": the gold query gives nothing to compare with;
        "infrastructure": the machinery failed, which says nothing about the prediction.
      detail: one sentence for a person.
      seconds: wall time of the predicted query.
      matches: whether the results agree under the mode, also where the gold is empty: benchmarks
        count that as right although nothing can be learnt from it.
      constant: whether it matches although it does not depend on the data, as the gold does: the
        answer was guessed, or read from an earlier result and written down. Worth counting.
      warnings: of a gold query that can serve: why a right answer might still be called wrong.
    """

    status: VerdictStatus
    detail: str = ""
    seconds: float = 0.0
    matches: bool = False
    constant: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Assessment:
    """One prediction seen in several ways.

    Attributes:
      verdicts: one a mode, in the order asked.
      soft_f1: similarity of the two results from 0 to 1 (`soft_f1.soft_f1`); 0 where the prediction
        gives none, None where the gold gives none or the machinery failed.
    """

    verdicts: tuple[Verdict, ...]
    soft_f1: float | None


def machine_fault(outcome: Outcome) -> bool:
    """Whether an execution failed for a reason that lies outside the query."""
    return outcome.code.startswith(_MACHINE_FAULTS)


def gold_fault(gold: Outcome) -> Verdict | None:
    """The verdict that a gold query's own failure forces, whatever the prediction."""
    if gold.ok:
        return None
    detail = f"the gold query gives no result ({gold.status}): {gold.message}"
    return Verdict("infrastructure" if machine_fault(gold) else "gold_error", detail)


def judge(
    gold: Outcome,
    pred: Outcome,
    mode: Mode,
    *,
    rel_tol: float = 1e-9,
    column_order: ColumnOrder = "position",
) -> Verdict:
    """Compares two executions. Pure; the gold must have a result (`gold_fault`).

    Whether a failure of the prediction was the machine's fault takes another query to find out.
    """
    if not pred.ok:
        return Verdict(pred.status, pred.message, pred.seconds)
    # The public BIRD rule fixes the order of columns, whatever the other modes are allowed.
    order = "position" if mode.kind == "bird" else column_order
    try:
        matches = results_equal(gold.rows, pred.rows, mode, rel_tol=rel_tol, column_order=order)
    except Undecided as undecided:
        return Verdict("too_large", str(undecided), pred.seconds)
    if is_empty(gold):
        detail = "the gold query gives no rows, or only NULL: any empty answer would match"
        return Verdict("gold_empty", detail, pred.seconds, matches)
    if matches:
        return Verdict("equal", f"equal under {mode}", pred.seconds, True)
    detail = f"gold gives {_size(gold)}, the prediction {_size(pred)}; compared under {mode}"
    return Verdict("different", detail, pred.seconds)


def judge_gold(gold: Outcome, again: Outcome, mode: Mode, *, rel_tol: float = 1e-9) -> Verdict:
    """Whether a gold query can serve: graded against a second run of itself, it must be equal.

    Under "subset" the gold lists all acceptable rows and is no acceptable answer itself; there it
    must have enough of them.
    """
    fault = gold_fault(gold)
    if fault:
        return fault
    if mode.kind != "subset":
        verdict = judge(gold, again, mode, rel_tol=rel_tol)
        if verdict.status == "different":
            detail = "run twice, the gold query gives two different results"
            return Verdict("gold_error", detail, verdict.seconds)
        return verdict
    verdict = judge(gold, again, Mode("set"), rel_tol=rel_tol)
    distinct = distinct_rows(gold.rows, rel_tol=rel_tol)
    if verdict.status == "equal" and distinct < mode.count:
        detail = f"the gold query gives {distinct} distinct rows, so {mode} can never be met"
        return Verdict("gold_error", detail, verdict.seconds)
    return verdict


def _size(outcome: Outcome) -> str:
    return f"{len(outcome.rows)} rows of {len(outcome.columns)} columns"
