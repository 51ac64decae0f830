"""The independent judge itself: it must be able to say no."""

import pytest
import replayer

TABLES = """
CREATE TABLE parent (id INTEGER PRIMARY KEY, name TEXT NOT NULL, n INTEGER CHECK (n > 0));
CREATE TABLE child (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES parent (id));
"""
ROWS = "INSERT INTO parent VALUES (1, 'a', 2), (2, 'b', 3); INSERT INTO child VALUES (1, 1);"


def test_a_difference_holds():
    found = replayer.replay(TABLES + ROWS, "SELECT n FROM parent", "SELECT n + 1 FROM parent")
    assert found.holds and found.first == [(2,), (3,)] and found.second == [(3,), (4,)]


def test_equal_results_do_not():
    found = replayer.replay(TABLES + ROWS, "SELECT n FROM parent", "SELECT n FROM parent WHERE 1")
    assert not found.holds and found.why == "the results are equal"


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("INSERT INTO child VALUES (1, 7);", "foreign keys are broken"),
        ("INSERT INTO parent VALUES (1, NULL, 1);", "the script does not load"),
        ("INSERT INTO parent VALUES (1, 'a', -1);", "the script does not load"),
        (
            "PRAGMA ignore_check_constraints = ON; INSERT INTO parent VALUES (1, 'a', -1);",
            "integrity",
        ),
    ],
)
def test_a_database_that_breaks_its_constraints_is_no_witness(rows, why):
    found = replayer.replay(TABLES + rows, "SELECT 1 FROM child", "SELECT 2")
    assert not found.holds and found.why.startswith(why)


def test_a_key_that_sqlite_cannot_check_hides_no_other():
    tables = """
    CREATE TABLE a (id INTEGER PRIMARY KEY, n INTEGER);
    CREATE TABLE b (n INTEGER REFERENCES a (n), id INTEGER REFERENCES a (id));
    """
    good = tables + "INSERT INTO a VALUES (1, 5); INSERT INTO b VALUES (9, 1);"
    assert replayer.replay(good, "SELECT n FROM b", "SELECT n FROM a").holds
    bad = tables + "INSERT INTO a VALUES (1, 5); INSERT INTO b VALUES (5, 2);"
    assert "foreign keys" in replayer.replay(bad, "SELECT n FROM b", "SELECT 1").why


def test_a_query_that_fails_or_runs_for_ever_is_no_witness():
    assert "a query fails" in replayer.replay(TABLES, "SELECT x FROM parent", "SELECT 1").why
    endless = (
        "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT MAX(n) FROM r"
    )
    assert "interrupted" in replayer.replay(TABLES, endless, "SELECT 1").why


@pytest.mark.parametrize(
    ("first", "second", "equal_under"),
    [
        ([(1,), (1,)], [(1,)], {"set", "bird"}),
        ([(1,), (2,)], [(2,), (1,)], {"set", "bird", "multiset"}),
        ([(1,)], [(1.0,)], {"set", "bird", "multiset", "list"}),
        ([(0.1 + 0.2,)], [(0.3,)], {"set", "multiset", "list"}),
        ([("1",)], [(1,)], set()),
        ([(b"a",)], [("a",)], set()),
        ([(None,)], [(None,)], {"set", "bird", "multiset", "list"}),
        ([(None,)], [(0,)], set()),
        ([], [(None,)], set()),
        ([(1, 2)], [(2, 1)], set()),
        ([(1.0,), (1 + 1e-10,)], [(1 + 1e-10,), (1.0,)], {"set", "bird", "multiset", "list"}),
    ],
)
def test_comparison(first, second, equal_under):
    modes = ("set", "multiset", "list", "bird")
    assert {mode for mode in modes if replayer.same(first, second, mode)} == equal_under
