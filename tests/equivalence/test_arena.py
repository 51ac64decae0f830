"""In-memory databases, reused."""

import pytest

from jax_t2sql.equivalence.arena import Arena, loose_ddl, only_statement
from jax_t2sql.equivalence.catalog import read_catalog

CATALOG = read_catalog(
    "CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT CHECK (b <> 'no'), c COLLATE NOCASE UNIQUE);"
    "CREATE TABLE u (x INT, y AS (x + 1)); CREATE VIEW v AS SELECT a + 1 AS n FROM t"
)


@pytest.fixture
def arena():
    with Arena(CATALOG.ddl, CATALOG.tables) as opened:
        yield opened


def test_each_load_replaces_all_rows(arena):
    assert arena.load({"t": [(1, "x", "p"), (2, None, "q")], "u": [(5,)]})
    assert arena.run("SELECT a, y FROM t, u") == [(1, 6), (2, 6)]
    assert arena.load({"t": [(3, "z", None)]})
    assert arena.run("SELECT a FROM t UNION ALL SELECT x FROM u") == [(3,)]
    assert arena.run("SELECT n FROM v") == [(4,)]


def test_rows_against_a_constraint_are_not_loaded(arena):
    assert not arena.load({"t": [(1, "no", None)]})
    assert "CHECK" in arena.error
    assert arena.accepts("t", (1, "yes", "K")) and not arena.accepts("t", (2, "x", "k"))
    assert not arena.accepts("t", (2**70, "x", None)) and not arena.accepts(
        "t", (3, "\ud800", None)
    )


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO u VALUES (1)",
        "DELETE FROM t",
        "ATTACH ':memory:' AS z",
        "PRAGMA journal_mode = WAL",
        "SELECT load_extension('x')",
        "SELECT nothing FROM t",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r",
        "SELECT zeroblob(900000000)",
        "SELECT abs(-9223372036854775808)",
    ],
)
def test_what_must_not_run_gives_nothing_and_says_why(arena, query):
    arena.load({"t": [(1, "x", "p")]})
    assert arena.run(query) is None and arena.error
    # And it serves on.
    assert arena.load({"t": [(7, "x", "p")]}) and arena.run("SELECT a FROM t") == [(7,)]


def test_reads_names_tables_and_columns(arena):
    assert arena.reads("SELECT B FROM T WHERE A > 1") == {("t", "b"), ("t", "a")}
    assert arena.reads("SELECT count(*) FROM u") == {("u", "")}
    assert ("t", "a") in arena.reads("SELECT n FROM v")
    assert arena.reads("SELECT z FROM t") is None and "no such column" in arena.error


def test_only_one_reading_statement_is_taken():
    assert only_statement("SELECT 1; -- done\n;") == ("SELECT 1", "")
    assert "second" in only_statement("SELECT 1; SELECT 2")[1]
    assert "DROP" in only_statement("DROP TABLE t")[1]
    assert only_statement(" -- nothing")[1]


def test_loose_tables_keep_any_order_and_the_same_comparisons():
    with Arena(loose_ddl(CATALOG, CATALOG.tables), CATALOG.tables) as arena:
        assert arena.load({"t": [(2, "x", "p"), (1, "x", "P"), (1, "no", None)], "u": [(1,)]})
        assert arena.run("SELECT a FROM t") == [(2,), (1,), (1,)]
        assert arena.run("SELECT count(*) FROM t WHERE c = 'P'") == [(2,)]
        assert arena.run("SELECT n, y FROM v, u LIMIT 1") == [(3, 2)]
        arena.reverse_scans(True)
        assert arena.run("SELECT a FROM t") == [(1,), (1,), (2,)]
