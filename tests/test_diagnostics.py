import json
from types import SimpleNamespace

import pytest

from jax_t2sql.diagnostics import diagnose


def diagnosed(*traces):
    rollouts = [
        SimpleNamespace(trace=trace if isinstance(trace, str) else json.dumps(trace))
        for trace in traces
    ]
    return diagnose(
        [SimpleNamespace(rollouts=rollouts[:1]), SimpleNamespace(rollouts=rollouts[1:])]
    )


def trace(pred="SELECT a FROM t", gold="SELECT a FROM t", verdict="equal", **fields):
    return {"predicted_sql": pred, "gold_sql": gold, "verdict": verdict} | fields


def test_failing_answers_are_counted_among_answers_by_kind():
    found = diagnosed(
        trace(),
        trace(verdict="error"),
        trace(verdict="timeout"),
        trace(verdict="different"),
        trace(None, verdict="no_answer"),
        trace(verdict="infrastructure"),
    )
    assert found["answers_failed_share"] == 0.5
    assert found["answers_error_share"] == found["answers_timeout_share"] == 0.25
    assert "answers_refused_share" not in found


def test_failing_calls_are_counted_among_calls():
    found = diagnosed(trace(calls=3, calls_failed=1), trace(calls=1, calls_failed=1))
    assert found["calls_mean"] == 2 and found["calls_failed_share"] == 0.5
    assert "calls_mean" not in diagnosed(trace(calls=0, calls_failed=0))


def test_compliance_and_use_of_knowledge_are_apart():
    evidence = "cheap refers to price < 5"
    uses, ignores = "SELECT a FROM t WHERE price < 5", "SELECT a FROM t"
    kept, broken = {"requirement": [], "verification": []}, {"requirement": [], "verification": [1]}
    found = diagnosed(
        trace(ignores, uses, evidence=evidence, evidence_missed=kept),
        trace(uses, uses, evidence=evidence, evidence_missed=broken),
        trace(),
    )
    assert found["evidence_complied_share"] == found["verification_missed_share"] == 0.5
    assert found["requirement_missed_share"] == 0
    assert found["evidence_used_share"] == 0.5


def test_structure_is_compared_with_the_gold_query():
    gold = "SELECT DISTINCT a FROM t JOIN u USING (i)"
    found = diagnosed(
        trace("SELECT a FROM t JOIN u USING (i)", gold),
        trace(gold, gold),
        trace("SELECT DISTINCT count(a) FROM t", "SELECT a FROM t"),
    )
    assert found["same_tables_share"] == 1 and found["same_aggregates_share"] == pytest.approx(
        2 / 3
    )
    assert found["distinct_omitted_share"] == 0.5 and found["distinct_superfluous_share"] == 1


def test_traces_of_strangers_are_passed_over():
    assert diagnosed("", "[1]", "{", "[" * 100_000, {}) == {}
    assert (
        diagnosed({"predicted_sql": 3, "gold_sql": None, "calls": "x", "evidence_missed": 1}) == {}
    )
