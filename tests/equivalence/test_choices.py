"""Differences that SQLite was free to make."""

from contextlib import closing

import pytest

from jax_t2sql.equivalence.arena import Arena
from jax_t2sql.equivalence.catalog import read_catalog
from jax_t2sql.equivalence.choices import Choices
from jax_t2sql.sql import parse_mode

CATALOG = read_catalog(
    "CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, s TEXT, r REAL); CREATE TABLE u (b INT)"
)
TIED = {"t": [(1, 5, "x", 0.1), (2, 5, "y", 0.2), (3, 5, "z", 0.3)], "u": [(1,), (2,)]}
CLEAR = {"t": [(1, 5, "x", 0.1), (2, 7, "y", 0.2)], "u": [(1,)]}


def real(gold, pred, rows, mode="set"):
    with Arena(CATALOG.ddl, CATALOG.tables) as arena:
        assert arena.load(rows), arena.error
        results = arena.run(gold), arena.run(pred)
    assert None not in results
    with closing(Choices(CATALOG, CATALOG.tables, gold, pred, parse_mode(mode))) as choices:
        return choices.real(rows, *results, thorough=True)


FREE = [
    # ties under LIMIT
    ("SELECT s FROM t ORDER BY a LIMIT 1", "SELECT s FROM t ORDER BY a, s DESC LIMIT 1", "set"),
    ("SELECT s FROM t LIMIT 1", "SELECT s FROM t ORDER BY id DESC LIMIT 1", "set"),
    (
        "SELECT max(s) FROM (SELECT s FROM t ORDER BY a LIMIT 2)",
        "SELECT max(s) FROM (SELECT s FROM t ORDER BY a, s DESC LIMIT 2)",
        "set",
    ),
    (
        "SELECT s FROM t WHERE id = (SELECT id FROM t ORDER BY a LIMIT 1)",
        "SELECT 'z' FROM t",
        "set",
    ),
    ("SELECT s FROM t UNION SELECT 'k' LIMIT 1", "SELECT 'z'", "set"),
    # bare columns
    ("SELECT s FROM t GROUP BY a", "SELECT max(s) FROM t GROUP BY a", "set"),
    ("SELECT min(s), id FROM t", "SELECT max(a), min(s) FROM t", "set"),
    ("SELECT s, max(a) FROM t", "SELECT 'z', 5", "set"),
    # order of rows
    ("SELECT s FROM t ORDER BY a", "SELECT s FROM t ORDER BY s DESC", "list"),
    ("SELECT s FROM t", "SELECT s FROM t ORDER BY id DESC", "list"),
    ("SELECT group_concat(s) FROM t", "SELECT 'z,y,x'", "set"),
    # a subquery of several rows as a value
    ("SELECT (SELECT s FROM t)", "SELECT 'z'", "set"),
    ("SELECT id FROM t WHERE s = (SELECT s FROM t)", "SELECT 3", "set"),
    ("SELECT (SELECT s FROM t WHERE t.id > u.b) FROM u", "SELECT 'z' FROM u", "set"),
    # a window that ranks ties
    (
        "SELECT s FROM (SELECT s, row_number() OVER (ORDER BY a) n FROM t) WHERE n = 1",
        "SELECT s FROM t ORDER BY a, s DESC LIMIT 1",
        "set",
    ),
    # floats added in another order, and chance itself
    ("SELECT sum(r) - 0.6 FROM t", "SELECT 0.6 - sum(r) FROM t WHERE id > 0 AND r < 9", "set"),
    ("SELECT random() % 2", "SELECT random() % 3", "set"),
    ("SELECT s FROM t ORDER BY random() LIMIT 1", "SELECT 'z'", "set"),
]


@pytest.mark.parametrize(("gold", "pred", "mode"), FREE)
def test_what_sqlite_may_choose_does_not_count(gold, pred, mode):
    rows = TIED
    if gold.startswith("SELECT min(s), id"):
        rows = {"t": [(1, 5, "x", 0.1), (2, 7, "x", 0.2)], "u": []}
        pred = "SELECT 'x', 2"
    assert not real(gold, pred, rows, mode)


REAL = [
    ("SELECT a FROM t", "SELECT id FROM t", CLEAR, "set"),
    # every choice of one row differs from all three
    ("SELECT s FROM t ORDER BY a LIMIT 1", "SELECT s FROM t", TIED, "set"),
    ("SELECT s FROM t LIMIT 2", "SELECT s FROM t", TIED, "set"),
    ("SELECT s FROM t ORDER BY a DESC LIMIT 1", "SELECT s FROM t ORDER BY a LIMIT 1", CLEAR, "set"),
    ("SELECT s FROM t ORDER BY a", "SELECT s FROM t ORDER BY a DESC", CLEAR, "list"),
    ("SELECT s FROM t", "SELECT s FROM t, u", TIED, "multiset"),
    ("SELECT s FROM t UNION SELECT 'k' LIMIT 1", "SELECT 'q'", TIED, "set"),
    (
        "SELECT count(*) FROM t WHERE s < date('now')",
        "SELECT count(*) FROM t WHERE s > date('now')",
        TIED,
        "set",
    ),
    ("SELECT date('now', '-1 day')", "SELECT date('now')", TIED, "set"),
    (
        "WITH RECURSIVE f(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM f LIMIT 3) SELECT i FROM f",
        "SELECT id + 1 FROM t ORDER BY id LIMIT 3",
        TIED,
        "set",
    ),
]


@pytest.mark.parametrize(("gold", "pred", "rows", "mode"), REAL)
def test_what_holds_for_every_choice_counts(gold, pred, rows, mode):
    assert real(gold, pred, rows, mode)


@pytest.mark.parametrize("now", ["'%Y', 'now'", "'%Y', 'NOW'", "'%Y'"])
def test_what_holds_today_alone_does_not_count(now):
    year = f"SELECT count(*) FROM t WHERE a + 2021 < strftime({now}) + 0"
    rows = {"t": [(1, 0, "x", 0.1)], "u": []}
    assert not real(year, "SELECT 0", rows)


@pytest.mark.parametrize(
    ("gold", "pred"),
    [
        ("SELECT DISTINCT w FROM k", "SELECT max(w COLLATE BINARY) FROM k"),
        ("SELECT w FROM k GROUP BY w", "SELECT min(w COLLATE BINARY) FROM k"),
        ("SELECT w FROM k UNION SELECT w FROM k", "SELECT max(w COLLATE BINARY) FROM k"),
    ],
)
def test_one_of_texts_that_are_equal_by_collation_is_a_choice(gold, pred):
    catalog = read_catalog("CREATE TABLE k (w TEXT COLLATE NOCASE)")
    rows = {"k": [("b",), ("B",), ("b",)]}
    with Arena(catalog.ddl, catalog.tables) as arena:
        arena.load(rows)
        results = arena.run(gold), arena.run(pred)
    with closing(Choices(catalog, catalog.tables, gold, pred, parse_mode("set"))) as choices:
        assert not choices.real(rows, *results, thorough=True)


def test_queries_that_speak_of_row_ids_keep_them():
    rows = {"t": [(5, 1, "x", 0.1), (9, 2, "y", 0.2)], "u": []}
    assert real("SELECT rowid FROM t", "SELECT a FROM t", rows)
