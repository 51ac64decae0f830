"""Queries with random choices."""

import sqlite3

import pytest

from jax_t2sql.equivalence.chance import at_instant, has_clock, shuffled


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT a FROM t ORDER BY b LIMIT 1", "SELECT a FROM t ORDER BY b , any_order() LIMIT 1"),
        ("SELECT a FROM t LIMIT 2", "SELECT a FROM t  ORDER BY any_order() LIMIT 2"),
        (
            "SELECT a FROM t WHERE a IN (SELECT b FROM t LIMIT 1)",
            "SELECT a FROM t WHERE a IN (SELECT b FROM t  ORDER BY any_order() LIMIT 1)",
        ),
        (
            "SELECT a FROM t UNION SELECT b FROM t LIMIT 1",
            "SELECT * FROM (SELECT a FROM t UNION SELECT b FROM t )  ORDER BY any_order() LIMIT 1",
        ),
        (
            "SELECT rank() OVER (ORDER BY a) FROM t",
            "SELECT rank() OVER (ORDER BY a) FROM t",
        ),
        ("SELECT 'ORDER BY x LIMIT 1' FROM t", "SELECT 'ORDER BY x LIMIT 1' FROM t"),
    ],
)
def test_ties_are_broken_at_random(query, expected):
    assert shuffled(query, ordered=False) == expected


def test_without_order_a_list_has_any_order():
    assert shuffled("SELECT a FROM t", ordered=True) == (
        "SELECT * FROM (SELECT a FROM t) ORDER BY any_order()"
    )
    query = "SELECT a FROM t ORDER BY a"
    assert shuffled(query, ordered=True) == query + ", any_order() "


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT a FROM t ORDER BY b DESC LIMIT 1 OFFSET 1",
        "WITH w AS (SELECT a FROM t ORDER BY 1 LIMIT 2) SELECT * FROM w UNION SELECT 3 ORDER BY 1",
        "SELECT (SELECT a FROM t LIMIT 1), (SELECT b FROM t ORDER BY a) FROM t GROUP BY a",
        "SELECT count(*) FROM t LIMIT 1",
        "SELECT a FROM (SELECT a FROM t UNION ALL SELECT b FROM t ORDER BY a LIMIT 3) LIMIT 1",
    ],
)
def test_the_rewritten_query_runs(query, ordered):
    connection = sqlite3.connect(":memory:")
    connection.create_function("any_order", 0, lambda: 0.5)
    connection.execute("CREATE TABLE t (a, b)")
    connection.execute("INSERT INTO t VALUES (1, 2)")
    expected = connection.execute(query).fetchall()
    assert sorted(connection.execute(shuffled(query, ordered=ordered))) == sorted(expected)


def test_the_clock_is_set():
    query = "SELECT date('now'), CURRENT_DATE, current_time, 'now or never', \"now\" FROM t"
    assert has_clock(query) and not has_clock("SELECT 'nowhere'")
    assert at_instant(query, "2001-02-03 04:05:06") == (
        "SELECT date('2001-02-03 04:05:06'), '2001-02-03', '04:05:06', 'now or never', \"now\""
        " FROM t"
    )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT date(), b FROM t", "SELECT date('2001-02-03 04:05:06'), b FROM t"),
        ("SELECT Time ( )", "SELECT Time ( '2001-02-03 04:05:06')"),
        ("SELECT strftime('%Y') - 1", "SELECT strftime('%Y', '2001-02-03 04:05:06') - 1"),
        ("SELECT date('NOW')", "SELECT date('2001-02-03 04:05:06')"),
    ],
)
def test_the_clock_is_set_where_no_moment_is_given(query, expected):
    assert has_clock(query) and at_instant(query, "2001-02-03 04:05:06") == expected


def test_dates_of_columns_need_no_clock():
    assert not has_clock("SELECT date(d), strftime('%Y', d), date FROM t")
