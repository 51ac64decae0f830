"""Verdicts from executions: whose fault is what."""

import pytest

from jax_t2sql.grading.verdict import gold_fault, judge, judge_gold, machine_fault
from jax_t2sql.sql import Mode, Outcome, parse_mode

SET = Mode("set")


def rows(*values):
    return Outcome("ok", ("a",), [(value,) for value in values], seconds=0.5)


def test_equal_and_different():
    equal = judge(rows(1, 2), rows(2, 1, 1), SET)
    assert (equal.status, equal.matches, equal.seconds) == ("equal", True, 0.5)
    different = judge(rows(1, 2), rows(2, 1, 1), Mode("multiset"))
    assert (different.status, different.matches) == ("different", False)
    assert "2 rows" in different.detail and "3 rows" in different.detail


@pytest.mark.parametrize("status", ["timeout", "too_large", "error", "refused", "no_query"])
def test_failed_predictions_keep_their_status_and_message(status):
    verdict = judge(rows(1), Outcome(status, message="why"), SET)
    assert (verdict.status, verdict.detail, verdict.matches) == (status, "why", False)
    # An empty gold does not hide it.
    assert judge(rows(), Outcome(status, message="why"), SET).status == status


@pytest.mark.parametrize("code", ["SQLITE_IOERR_READ", "SQLITE_CORRUPT", "SQLITE_CANTOPEN"])
def test_the_machines_faults_are_not_the_querys(code):
    broken = Outcome("error", message="disk I/O error", code=code)
    assert machine_fault(broken)
    # Whether it was, the judge cannot know: the gold has to be run again.
    assert judge(rows(1), broken, SET).status == "error"
    assert gold_fault(broken).status == "infrastructure"
    assert gold_fault(Outcome("error", code="SQLITE_ERROR")).status == "gold_error"
    assert gold_fault(Outcome("timeout")).status == "gold_error"
    assert gold_fault(rows(1)) is None


@pytest.mark.parametrize("gold", [rows(), rows(None), rows(None, None)])
def test_an_empty_gold_earns_nothing_but_says_whether_it_matches(gold):
    same = judge(gold, gold, SET)
    assert (same.status, same.matches) == ("gold_empty", True)
    other = judge(gold, rows(1), SET)
    assert (other.status, other.matches) == ("gold_empty", False)


def test_column_order_never_applies_to_bird():
    gold, pred = Outcome("ok", ("a", "b"), [(1, 2)]), Outcome("ok", ("b", "a"), [(2, 1)])
    assert judge(gold, pred, SET, column_order="any").status == "equal"
    assert judge(gold, pred, SET).status == "different"
    assert judge(gold, pred, Mode("bird"), column_order="any").status == "different"


def test_a_gold_must_equal_itself():
    assert judge_gold(rows(1), rows(1), Mode("list")).status == "equal"
    assert judge_gold(rows(1), rows(2), SET).status == "gold_error"
    assert judge_gold(rows(), rows(), SET).status == "gold_empty"
    assert judge_gold(Outcome("error"), rows(1), SET).status == "gold_error"


@pytest.mark.parametrize(
    ("mode", "status"),
    [("subset,=,2", "equal"), ("subset,>=,3", "equal"), ("subset,=,4", "gold_error")],
)
def test_a_subset_gold_must_have_enough_distinct_rows(mode, status):
    gold = rows(1, 2, 3, 3)
    assert judge_gold(gold, gold, parse_mode(mode)).status == status


def test_a_comparison_that_cannot_be_decided_is_too_large(monkeypatch):
    monkeypatch.setattr("jax_t2sql.sql.columns._MAX_CELLS", 0)
    # Two triangles against a ring of six: only a search tells that no order of columns will do.
    rings = [
        ((0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)),
        tuple((i, (i + 1) % 6) for i in range(6)),
    ]
    gold, pred = (
        Outcome("ok", tuple("abcdef"), [tuple(int(k in e) for k in range(6)) for e in ring])
        for ring in rings
    )
    assert judge(gold, gold, SET, column_order="any").status == "equal"
    verdict = judge(gold, pred, SET, column_order="any")
    assert (verdict.status, verdict.matches) == ("too_large", False)
    assert "column_order" in verdict.detail
