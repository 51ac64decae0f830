"""twins(): what counts as one query, and what does not."""

import random
import sqlite3

import pytest

from jax_t2sql.equivalence.catalog import read_catalog
from jax_t2sql.equivalence.normalise import twins
from jax_t2sql.sql.compare import results_equal

_DDL = """
CREATE TABLE t (a INTEGER, b INTEGER, c TEXT, n TEXT COLLATE NOCASE, x);
CREATE TABLE u (a INTEGER, d TEXT);
"""
_CATALOG = read_catalog(_DDL)

_TWINS = [
    ("SELECT a FROM t", "select  A from T -- the same\n;"),
    ("SELECT a FROM t", "SELECT q.a AS number FROM t AS q"),
    ("SELECT [a], `b` FROM t", 'SELECT "a", b FROM "t"'),
    ("SELECT * FROM t", "SELECT a, b, c, n, x FROM t"),
    ("SELECT a FROM t WHERE a = 1 AND c = 'x'", "SELECT a FROM t WHERE c = 'x' AND 1 = a"),
    ("SELECT a FROM t WHERE a = 1 OR b = 2 OR a = 3", "SELECT a FROM t WHERE a=3 OR (b=2 OR a=1)"),
    ("SELECT a FROM t WHERE a > b", "SELECT a FROM t WHERE b < a"),
    ("SELECT a FROM t WHERE a BETWEEN 1 AND 2", "SELECT a FROM t WHERE a <= 2 AND a >= 1"),
    ("SELECT a FROM t WHERE a IN (1, 2, 2)", "SELECT a FROM t WHERE a IN (2, 1)"),
    ("SELECT a + b FROM t", "SELECT b + a FROM t"),
    ("SELECT a FROM t WHERE NOT (a IS NULL)", "SELECT a FROM t WHERE a IS NOT NULL"),
    ("SELECT COUNT(*) FROM t", "SELECT COUNT(1) FROM t"),
    ("SELECT t.b, d FROM t JOIN u ON t.a = u.a", "SELECT b, u.d FROM u, t WHERE t.a = u.a"),
    ("SELECT t.b, d FROM t JOIN u USING (a)", "SELECT t.b, u.d FROM t JOIN u ON t.a = u.a"),
    (
        "WITH w AS (SELECT a AS k FROM t WHERE b = 1) SELECT k FROM w",
        "SELECT s.k FROM (SELECT a k FROM t WHERE b = 1) AS s",
    ),
    ("SELECT a FROM t ORDER BY a", "SELECT a FROM t"),
    ("SELECT a FROM t ORDER BY b LIMIT 1", "SELECT q.a FROM t q ORDER BY q.b LIMIT 1"),
    ("SELECT RANK() OVER (ORDER BY a) FROM t", "select rank() over (order by A) from T"),
]

_NO_TWINS = [
    ("SELECT a FROM t", "SELECT b FROM t"),
    ("SELECT a FROM t WHERE c = 'x'", "SELECT a FROM t WHERE c = 'X'"),
    ("SELECT a FROM t WHERE a > b", "SELECT a FROM t WHERE a < b"),
    ("SELECT a - b FROM t", "SELECT b - a FROM t"),
    ("SELECT DISTINCT a FROM t", "SELECT a FROM t"),
    ("SELECT DISTINCT n FROM t", "SELECT n FROM t"),
    ("SELECT DISTINCT c COLLATE NOCASE FROM t", "SELECT c FROM t"),
    ("SELECT a FROM t WHERE n = c", "SELECT a FROM t WHERE c = n"),
    ("SELECT a FROM t WHERE x = 1", "SELECT a FROM t WHERE x = 1.5"),
    ("SELECT a / 1 FROM t", "SELECT a / 1.0 FROM t"),
    ("SELECT COUNT(*) FROM t", "SELECT COUNT(NULL) FROM t"),
    ("SELECT COUNT(*) FROM t", "SELECT COUNT(a) FROM t"),
    ("SELECT t.b FROM t LEFT JOIN u ON t.a = u.a", "SELECT t.b FROM t JOIN u ON t.a = u.a"),
    (
        "SELECT t.b FROM t LEFT JOIN u ON t.a = u.a AND u.d = 'x'",
        "SELECT t.b FROM t LEFT JOIN u ON t.a = u.a WHERE u.d = 'x'",
    ),
    (
        "SELECT a FROM t WHERE b = 1 AND c = 'x' LIMIT 1",
        "SELECT a FROM t WHERE c = 'x' AND b = 1 LIMIT 1",
    ),
    ('SELECT a FROM t WHERE c = "d"', "SELECT a FROM t WHERE c = d"),
    ("SELECT a >= b NOT BETWEEN a AND b FROM t", "SELECT a >= (b NOT BETWEEN a AND b) FROM t"),
]


@pytest.mark.parametrize(("gold", "pred"), _TWINS)
def test_twins(gold, pred):
    assert twins(gold, pred, _CATALOG, "multiset")


@pytest.mark.parametrize(("gold", "pred"), _NO_TWINS)
def test_no_twins(gold, pred):
    assert not twins(gold, pred, _CATALOG, "multiset")


def test_the_mode_decides_what_counts():
    plain, distinct = "SELECT a FROM t", "SELECT DISTINCT a FROM t"
    assert twins(plain, distinct, _CATALOG, "set")
    ordered = "SELECT a FROM t ORDER BY a"
    assert not twins(plain, ordered, _CATALOG, "list")
    assert twins(ordered, "SELECT q.a FROM t q ORDER BY q.a", _CATALOG, "list")
    assert not twins(plain, plain, _CATALOG, "subset,=,1")


def test_the_order_of_work_is_kept_for_the_bit_exact_mode():
    one = "SELECT SUM(x) FROM t JOIN u ON t.a = u.a"
    other = "SELECT SUM(x) FROM u JOIN t ON t.a = u.a"
    assert twins(one, other, _CATALOG, "set")
    assert not twins(one, other, _CATALOG, "bird")


def test_a_star_takes_its_columns_from_the_order_of_joins():
    assert not twins("SELECT * FROM t, u", "SELECT * FROM u, t", _CATALOG, "set")


def test_what_cannot_be_read_is_no_twin():
    assert not twins("SELECT", "FROM", _CATALOG, "set")
    assert not twins("SELECT a FROM nowhere", "SELECT b FROM nowhere", _CATALOG, "set")


@pytest.mark.parametrize(("gold", "pred"), _TWINS)
def test_twins_give_the_same_on_random_rows(gold, pred):
    rng = random.Random(gold)
    values = [None, 0, 1, 2, 3, 1.5, "x", "X", "1", "a"]
    for _ in range(40):
        connection = sqlite3.connect(":memory:")
        connection.executescript(_DDL)
        for table, width in (("t", 5), ("u", 2)):
            for _ in range(rng.randint(0, 4)):
                row = [rng.choice(values) for _ in range(width)]
                connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * width)})", row)
        a, b = (connection.execute(sql).fetchall() for sql in (gold, pred))
        assert results_equal(a, b, "multiset")
