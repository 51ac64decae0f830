"""Databases made for queries keep every declared constraint."""

import random
import sqlite3

import pytest

from jax_t2sql.equivalence.arena import Arena
from jax_t2sql.equivalence.catalog import read_catalog
from jax_t2sql.equivalence.fill import draw
from jax_t2sql.equivalence.grow import grow, pattern
from jax_t2sql.equivalence.mend import mend, without_faults
from jax_t2sql.equivalence.mutate import Corpus
from jax_t2sql.equivalence.outline import outline
from jax_t2sql.equivalence.plan import make_plan
from jax_t2sql.equivalence.replay import as_script, violation

SCHEMAS = {
    "keys": (
        "CREATE TABLE p (x INTEGER PRIMARY KEY, n TEXT NOT NULL UNIQUE, m INT UNIQUE);"
        "CREATE TABLE c (a INT NOT NULL REFERENCES p, b TEXT REFERENCES p (n), PRIMARY KEY (a, b))",
        "SELECT b, n, m FROM c JOIN p ON a = x WHERE m > 3 AND n = 'q'",
    ),
    "composite": (
        "CREATE TABLE p (k TEXT, r TEXT, PRIMARY KEY (k, r));"
        "CREATE TABLE q (j TEXT, r TEXT, PRIMARY KEY (j, r));"
        "CREATE TABLE c (k TEXT NOT NULL, j TEXT NOT NULL, r TEXT NOT NULL,"
        " FOREIGN KEY (k, r) REFERENCES p, FOREIGN KEY (j, r) REFERENCES q)",
        "SELECT * FROM c JOIN p USING (k, r) JOIN q USING (j, r) WHERE r = 'East'",
    ),
    "circle": (
        "CREATE TABLE a (x INTEGER PRIMARY KEY, y INT NOT NULL REFERENCES b);"
        "CREATE TABLE b (x INTEGER PRIMARY KEY, y INT REFERENCES a);"
        "CREATE TABLE s (x INTEGER PRIMARY KEY, boss INT REFERENCES s)",
        "SELECT a.y, b.y, boss FROM a, b, s WHERE a.x = b.x",
    ),
    "typed": (
        "CREATE TABLE p (t TEXT PRIMARY KEY COLLATE NOCASE, n DECIMAL UNIQUE) WITHOUT ROWID;"
        "CREATE TABLE c (t TEXT REFERENCES p, v REFERENCES p (n))",
        "SELECT c.t, v FROM c, p WHERE p.t IN ('a', 'A', 'b') AND n = '01'",
    ),
    "parents nobody reads": (
        "CREATE TABLE p (k VARCHAR(5) PRIMARY KEY);"
        "CREATE TABLE c (a TEXT NOT NULL REFERENCES p, b TEXT REFERENCES p, d TEXT REFERENCES p)",
        "SELECT a, b FROM c",
    ),
}


def made(name):
    ddl, query = SCHEMAS[name]
    catalog = read_catalog(ddl)
    with Arena(catalog.ddl, catalog.tables) as arena:
        reads = arena.reads(query)
    found = outline(query, catalog)
    plan = make_plan(catalog, reads, [found])
    return catalog, plan, [pattern(found, plan)]


@pytest.mark.parametrize("name", sorted(SCHEMAS))
@pytest.mark.parametrize("how", ["draw", "grow", "mutant"])
def test_every_database_keeps_the_constraints(name, how):
    catalog, plan, patterns = made(name)
    rng = random.Random(name + how)
    corpus = Corpus(plan, rng)
    filled = {table.name: 0 for table in catalog.tables}
    for number in range(150):
        if how == "draw":
            rows = draw(plan, rng)
        elif how == "grow":
            rows = grow(patterns, plan, rng)
        else:
            corpus.add(draw(plan, rng), [(number,)] * number, [])
            rows = corpus.mutant()
        assert violation(as_script(catalog, rows)) == "", rows
        for table, kept in rows.items():
            filled[table] += len(kept)
    for sheet in plan.sheets:
        assert filled[sheet.name] > 20, filled


def test_columns_get_values_that_the_query_speaks_of():
    _, plan, _ = made("keys")
    cells = {cell.column.name: cell for cell in plan.by_name["p"].cells}
    assert 4 in cells["m"].hits and 3 in cells["m"].near and "q" in cells["n"].hits
    assert cells["m"].group is None and cells["n"].group is not None


def test_tables_that_nobody_reads_stay_out():
    catalog = read_catalog(
        "CREATE TABLE p (x INTEGER PRIMARY KEY); CREATE TABLE o (z);"
        "CREATE TABLE c (a INT REFERENCES p, b INT)"
    )
    plan = make_plan(catalog, {("c", "b")}, [outline("SELECT b FROM c", catalog)])
    assert [sheet.name for sheet in plan.sheets] == ["c"]
    rows = draw(plan, random.Random(0))
    assert all(row[0] is None for row in rows["c"])


def test_grown_rows_make_the_query_answer():
    catalog = read_catalog("CREATE TABLE e (a INT, b INT, c TEXT)")
    joins = " AND ".join(f"t{i}.b = t{i + 1}.a" for i in range(6))
    tables = ", ".join(f"e t{i}" for i in range(7))
    query = f"SELECT t0.a FROM {tables} WHERE {joins} AND t6.c = 'end' AND t3.c = 'middle'"
    with Arena(catalog.ddl, catalog.tables) as arena:
        found = outline(query, catalog)
        plan = make_plan(catalog, arena.reads(query), [found])
        answers = 0
        rng = random.Random(0)
        for _ in range(100):
            arena.load(grow([pattern(found, plan)], plan, rng))
            answers += bool(arena.run(query))
    assert answers > 40


def test_mending_keeps_what_is_right_and_repairs_the_rest():
    catalog, plan, _ = made("keys")
    rng = random.Random(0)
    right = {"p": [(1, "a", 5), (2, "b", None)], "c": [(1, "a"), (2, None)]}
    assert mend(right, plan, rng) == right
    wrong = {"p": [(1, "a", 5), (1, "a", 5), (3, None, 5)], "c": [(9, "zz"), (None, "a")]}
    mended = mend(wrong, plan, rng)
    assert violation(as_script(catalog, mended)) == ""
    assert len(mended["p"]) == 3 and len(mended["c"]) >= 1
    grown = mend({"p": [], "c": [(9, "zz")]}, plan, rng, grow=True)
    assert (9, "zz") in grown["c"] and violation(as_script(catalog, grown)) == ""


def test_without_faults_changes_no_value():
    catalog, plan, _ = made("keys")
    rows = {"p": [(1, "a", 5), (2, "a", 6)], "c": [(1, "a"), (2, "a"), (1, None)]}
    assert without_faults(rows, plan) == {"p": [(1, "a", 5)], "c": [(1, "a"), (1, None)]}


def test_a_check_is_kept_by_sqlite_and_met_by_its_own_literals():
    ddl = "CREATE TABLE t (kind TEXT NOT NULL CHECK (kind IN ('one', 'two')), n INT)"
    catalog = read_catalog(ddl)
    plan = make_plan(
        catalog, {("t", "kind"), ("t", "n")}, [outline("SELECT kind, n FROM t", catalog)]
    )
    connection = sqlite3.connect(":memory:")
    connection.execute(ddl)
    rng = random.Random(0)
    kept = 0
    for _ in range(100):
        for row in draw(plan, rng)["t"]:
            kept += connection.execute("INSERT OR IGNORE INTO t VALUES (?, ?)", row).rowcount
    assert kept > 20
