"""Counterexamples are replayed before anybody believes them."""

import sqlite3

import pytest

from jax_t2sql.equivalence.catalog import read_catalog
from jax_t2sql.equivalence.minimise import minimise
from jax_t2sql.equivalence.replay import Refutation, as_script, confirm, violation
from jax_t2sql.sql import parse_mode

CATALOG = read_catalog(
    'CREATE TABLE p (x INTEGER PRIMARY KEY); CREATE TABLE c (a INT REFERENCES p, "b c" BLOB)'
)
ROWS = {"p": [(1,), (2,)], "c": [(1, b"\x00'"), (None, "it's")]}


def test_a_difference_is_confirmed_with_both_results():
    found = confirm(CATALOG, ROWS, "SELECT a FROM c;", "SELECT x FROM p -- all", parse_mode("set"))
    assert isinstance(found, Refutation)
    assert found.gold.columns == ("a",) and found.gold.rows == ((1,), (None,))
    assert found.pred.rows == ((1,), (2,))
    connection = sqlite3.connect(":memory:")
    connection.executescript(found.database)
    assert connection.execute("SELECT * FROM c").fetchall() == ROWS["c"]


@pytest.mark.parametrize(
    ("rows", "gold", "pred", "reason"),
    [
        ({"p": [(1,)]}, "SELECT x FROM p", "SELECT 1", "equal results"),
        ({"c": [(7, None)]}, "SELECT a FROM c", "SELECT 1", "breaks a constraint"),
        ({"p": [(1,), (1,)]}, "SELECT x FROM p", "SELECT 2", "breaks a constraint"),
        ({}, "SELECT y FROM p", "SELECT 2", "gold query fails"),
        ({}, "SELECT 1", "SELECT abs(-9223372036854775808)", "predicted query fails"),
        ({}, "SELECT 1", "SELECT 1; SELECT 2", "cannot be run"),
        ({}, "DELETE FROM p", "SELECT 1", "cannot be run"),
    ],
)
def test_what_does_not_hold_is_turned_down_with_the_reason(rows, gold, pred, reason):
    found = confirm(CATALOG, rows, gold, pred, parse_mode("set"))
    assert isinstance(found, str) and reason in found


def test_a_script_names_the_columns_that_hold_something():
    catalog = read_catalog("CREATE TABLE t (a, b DEFAULT 5, c, d AS (a)); CREATE TABLE e (x)")
    rows = {"t": [(1, None, None), (None, 2, None)], "e": [(None,)]}
    script = as_script(catalog, rows)
    assert '("a", "b") VALUES (1, NULL)' in script
    connection = sqlite3.connect(":memory:")
    connection.executescript(script)
    assert connection.execute("SELECT a, b, c FROM t").fetchall() == rows["t"]
    assert connection.execute("SELECT * FROM e").fetchall() == rows["e"]


def test_the_grading_mode_decides():
    gold, pred = "SELECT x FROM p", "SELECT x FROM p UNION ALL SELECT x FROM p"
    assert isinstance(confirm(CATALOG, ROWS, gold, pred, parse_mode("multiset")), Refutation)
    assert isinstance(confirm(CATALOG, ROWS, gold, pred, parse_mode("set")), str)


def test_violations_are_named():
    assert violation(as_script(CATALOG, ROWS)) == ""
    assert "missing row of p" in violation(as_script(CATALOG, {"c": [(5, None)]}))


def test_minimising_leaves_what_is_needed():
    rows = {"p": [(n,) for n in range(20)], "c": [(n, None) for n in range(9)]}
    asked = 0

    def needs_three_and_seven(kept):
        nonlocal asked
        asked += 1
        return (3,) in kept["p"] and (7, None) in kept["c"]

    assert minimise(rows, needs_three_and_seven) == {"p": [(3,)], "c": [(7, None)]}
    assert asked <= 200
    assert len(minimise(rows, lambda kept: True, tries=1)["p"]) > 0
    assert rows["p"][0] == (0,) and len(rows["p"]) == 20
