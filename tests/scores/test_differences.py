import doctest
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_t2sql.scores import differences as module
from jax_t2sql.scores.differences import KINDS, differences

COLUMNS = {"t": frozenset("abcd"), "u": frozenset("xya")}


def told(gold, pred):
    return [f"{found.kind}: {found.text}" for found in differences(gold, pred, COLUMNS)]


CASES = [
    ("SELECT a FROM t", "SELECT T1.a FROM t AS T1;", []),
    ("SELECT a FROM t", 'select "A" from T -- same', []),
    ("SELECT a FROM t WHERE 1 < b", "SELECT a FROM t WHERE b > 1", []),
    ("SELECT a FROM t WHERE b = 'X' AND c = 1", "SELECT a FROM t WHERE c = 1 AND b = \"X\"", []),
    ("SELECT t.a FROM t JOIN u ON t.a = u.x", "SELECT t.a FROM u JOIN t ON u.x = t.a", []),
    ("SELECT a FROM t WHERE b = 1", "SELECT a FROM t",
     ["missing filter: the filter t.b = 1 is missing"]),
    ("SELECT a FROM t WHERE b = 1 UNION SELECT a FROM t WHERE b = 1", "SELECT a FROM t WHERE b = 1",
     ["repetition: table t stands 1 times instead of 2",
      "repetition: the filter t.b = 1 stands 1 times instead of 2",
      "set operation: UNION is missing"]),
    ("SELECT a FROM t", "SELECT a FROM t WHERE b = 1",
     ["extra filter: the filter t.b = 1 is too much"]),
    ("SELECT a FROM t WHERE b IS NOT NULL", "SELECT a FROM t",
     ["NULL filter: the filter NOT t.b IS NULL is missing"]),
    ("SELECT a FROM t WHERE b = 'Paris'", "SELECT a FROM t WHERE b = 'paris'",
     ["literal case: t.b = 'paris' instead of t.b = 'Paris': only upper and lower case differ"]),
    ("SELECT a FROM t WHERE b = 1", "SELECT a FROM t WHERE b = 2",
     ["other value: t.b = 2 instead of t.b = 1"]),
    ("SELECT a FROM t WHERE b > 1", "SELECT a FROM t WHERE b >= 1",
     ["other comparison: t.b >= 1 instead of t.b > 1"]),
    ("SELECT a, b FROM t", "SELECT b, a FROM t",
     ["column order: the columns should stand in this order: t.a, t.b"]),
    ("SELECT a, b FROM t", "SELECT a FROM t", ["missing column: t.b is not selected"]),
    ("SELECT a FROM t", "SELECT a, b FROM t", ["extra column: t.b is selected too"]),
    ("SELECT a FROM t", "SELECT b FROM t", ["other column: selects t.b instead of t.a"]),
    ("SELECT t.a FROM t LEFT JOIN u ON t.a = u.x", "SELECT t.a FROM t JOIN u ON t.a = u.x",
     ["join kind: inner join of u instead of left join"]),
    ("SELECT t.a FROM t JOIN u ON t.a = u.x", "SELECT t.a FROM t JOIN u ON t.a = u.y",
     ["join condition: the join condition t.a = u.x is missing",
      "join condition: the join condition t.a = u.y is too much"]),
    ("SELECT a FROM t", "SELECT t.a FROM t, u", ["extra table: table u is too much"]),
    ("SELECT DISTINCT a FROM t", "SELECT a FROM t", ["DISTINCT: DISTINCT is missing"]),
    ("SELECT a FROM t GROUP BY a", "SELECT a FROM t GROUP BY a, b",
     ["aggregation scope: grouped by t.a, t.b instead of t.a"]),
    ("SELECT a FROM t ORDER BY b DESC LIMIT 1", "SELECT a FROM t ORDER BY b",
     ["order: ordered by t.b instead of t.b DESC", "limit: limit none instead of 1"]),
    ("SELECT a FROM t UNION SELECT x FROM u", "SELECT a FROM t INTERSECT SELECT x FROM u",
     ["set operation: UNION is missing", "set operation: INTERSECT is too much"]),
    ("SELECT a FROM t WHERE b IN (SELECT a FROM u)",
     "SELECT a FROM t WHERE b IN (SELECT u.a FROM u)", []),  # the nearest table's column
    ("SELECT a FROM t", "SELEC a", ["unreadable: the predicted query cannot be taken apart"]),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "pred", "expected"), CASES, ids=[c[1][:50] for c in CASES])
def test_by_hand(gold, pred, expected):
    found = [line for line in told(gold, pred) if not line.startswith("structure")]
    assert found == expected


def test_aggregates_are_paired_with_the_likest():
    found = told("SELECT sum(b) FROM t", "SELECT count(b) FROM t")
    assert found == ["aggregation: COUNT(t.b) instead of SUM(t.b)"]
    found = told("SELECT 2 * count(DISTINCT b) FROM t", "SELECT 2 * count(b) FROM t")
    assert found == ["DISTINCT: COUNT(t.b) instead of COUNT(DISTINCT t.b)"]
    found = told("SELECT max(a), min(b) FROM t", "SELECT min(a), max(b) FROM t")
    assert found[-2:] == [
        "aggregation: MIN(t.a) instead of MAX(t.a)",
        "aggregation: MAX(t.b) instead of MIN(t.b)",
    ]
    assert told("SELECT max(a) FROM t", "SELECT max(a), max(b) FROM t")[-1] == (
        "aggregation: MAX(t.b) is too much"
    )


def test_the_same_parts_in_another_arrangement_are_said_to_be_so():
    nested = "SELECT a FROM t WHERE b = (SELECT max(b) FROM t WHERE c = 1) AND d = 2"
    other = "SELECT a FROM t WHERE b = (SELECT max(b) FROM t WHERE c = 1) AND d = 2 AND 1 = 1"
    assert told(nested, other) != [] and told(nested, nested) == []


@given(st.text(max_size=60), st.text(alphabet="SELECTFROMWHERE a,()'\";*=", max_size=80))
def test_no_text_makes_it_raise(gold, pred):
    assert {found.kind for found in differences(gold, pred, COLUMNS)} <= set(KINDS)


def test_real_wrong_predictions_are_told_apart(data_dir, sample):
    path = data_dir / "test_suite" / "spider_dev_predictions.jsonl"
    rows = [row for row in map(json.loads, path.open()) if not row["eq_set"]]
    found = [differences(row["gold"], row["pred"], {}) for row in sample(rows, 150)]
    assert all(found) and {d.kind for ds in found for d in ds} <= set(KINDS)
    assert sum(d.kind == "unreadable" for ds in found for d in ds) <= 3


def test_the_example_in_the_docstring():
    assert doctest.testmod(module).failed == 0
