"""What a step's rollouts did, beyond rewards: failing queries, knowledge used, structure.

All of it is read from the rollouts' traces, so it is the same for every kind of sampler. Shares
whose denominator is empty in a step are left out of it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jax_t2sql.bus import Group, Rollout
from jax_t2sql.sql.profile import FACETS, differences, profile
from jax_t2sql.text2sql.evidence_use import evidence_use

_RAN = ("equal", "different", "gold_empty")
_NOT_ITS_FAULT = ("infrastructure", "gold_error", "no_answer")


def diagnose(groups: Sequence[Group]) -> dict[str, float]:
    """Metrics of a step's groups.

    Of the answers: `answers_failed_share`, whose query gave no result, and one number for each way
    to fail that occurred. Of the calls before an answer: `calls_mean` a rollout, and
    `calls_failed_share`. Of rollouts with numbered knowledge: `evidence_complied_share` (both
    blocks whole), `requirement_missed_share`, `verification_missed_share`. Of answers to questions
    with knowledge: `evidence_used_share`, the part of the columns and values named by it that the
    SQL holds. Of all answers: `same_<facet>_share`, whose structure is the gold query's;
    `distinct_omitted_share` of those whose gold removes doubles, `distinct_superfluous_share` of
    the others.
    """
    records = [read_trace(rollout) for group in groups for rollout in group.rollouts]
    return _execution(records) | _evidence(records) | structure(records)


def read_trace(rollout: Rollout) -> dict[str, Any]:
    """The rollout's trace; empty where a sampler wrote something else."""
    try:
        record = json.loads(rollout.trace)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def structure(records: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """How the answers' structure agrees with the gold queries'.

    Args:
      records: with `predicted_sql` and `gold_sql`; those without either are passed over.
    """
    pairs = [
        (record["gold_sql"], record["predicted_sql"])
        for record in records
        if isinstance(record.get("gold_sql"), str) and isinstance(record.get("predicted_sql"), str)
    ]
    if not pairs:
        return {}
    different = [differences(gold, pred) for gold, pred in pairs]
    shares = {
        f"same_{facet}_share": _mean(facet not in found for found in different)
        for facet in FACETS
        if facet != "distinct"
    }
    wanted = [profile(gold).distinct for gold, _ in pairs]
    for name, has in (("omitted", True), ("superfluous", False)):
        missed = ["distinct" in d for d, w in zip(different, wanted, strict=True) if w == has]
        if missed:
            shares[f"distinct_{name}_share"] = _mean(missed)
    return shares


def _execution(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    verdicts = [record.get("verdict") for record in records]
    answered = [verdict for verdict in verdicts if verdict and verdict not in _NOT_ITS_FAULT]
    found: dict[str, float] = {}
    if answered:
        failed = [verdict for verdict in answered if verdict not in _RAN]
        found["answers_failed_share"] = len(failed) / len(answered)
        for kind in sorted(set(failed)):
            found[f"answers_{kind}_share"] = failed.count(kind) / len(answered)
    calls = [record["calls"] for record in records if isinstance(record.get("calls"), int)]
    if total := sum(calls):
        found["calls_mean"] = total / len(calls)
        found["calls_failed_share"] = sum(r.get("calls_failed", 0) for r in records) / total
    return found


def _evidence(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    found: dict[str, float] = {}
    missed = [r["evidence_missed"] for r in records if isinstance(r.get("evidence_missed"), dict)]
    if missed:
        found["evidence_complied_share"] = _mean(not any(m.values()) for m in missed)
        for block in ("requirement", "verification"):
            found[f"{block}_missed_share"] = _mean(bool(m.get(block)) for m in missed)
    used = [
        evidence_use(r["evidence"], r["predicted_sql"], known=r.get("gold_sql") or "").share
        for r in records
        if r.get("evidence") and r.get("predicted_sql")
    ]
    named = [share for share in used if share is not None]
    if named:
        found["evidence_used_share"] = _mean(named)
    return found


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
