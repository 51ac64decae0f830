"""Perturbed copies of a real database, and what breaks on them."""

import random
import sqlite3
from collections import Counter

import pytest
import replayer

from jax_t2sql.equivalence import check_perturbed, read_catalog
from jax_t2sql.equivalence.perturb import perturb
from jax_t2sql.equivalence.sample import needed_tables, read_rows
from jax_t2sql.errors import UserError
from jax_t2sql.sql.database import connect_readonly

SCRIPT = """
CREATE TABLE maker (id INTEGER PRIMARY KEY, name TEXT, country TEXT);
CREATE TABLE car (id INTEGER PRIMARY KEY, maker TEXT REFERENCES maker (id), model TEXT, power REAL,
                  seats INTEGER CHECK (seats > 0));
CREATE TABLE sale (car INTEGER NOT NULL REFERENCES car (id), price INTEGER, year INTEGER);
"""


@pytest.fixture
def garage(tmp_path):
    path = tmp_path / "garage.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(SCRIPT)
    for i in range(1, 9):
        connection.execute(
            "INSERT INTO maker VALUES (?, ?, ?)", (i, f"m{i}", "JP" if i < 3 else "FR")
        )
    for i in range(1, 41):
        row = (i, str(i % 8 + 1), f"x{i % 5}", 50.0 + i, i % 4 + 1)
        connection.execute("INSERT INTO car VALUES (?, ?, ?, ?, ?)", row)
        connection.execute("INSERT INTO sale VALUES (?, ?, ?)", (i, 1000 * i, 2000 + i % 10))
    connection.commit()
    connection.close()
    return path


def real(path, most=1_000):
    catalog = read_catalog(path)
    tables = needed_tables(catalog, {table.name for table in catalog.tables})
    return tables, read_rows(connect_readonly(path), tables, ["SELECT 1"], most=most,
                             rng=random.Random(0))  # fmt: skip


def test_keys_and_references_hold_on_every_copy(garage):
    tables, rows = real(garage)
    connection = sqlite3.connect(":memory:")
    connection.executescript(SCRIPT + "PRAGMA foreign_keys = ON;")
    for seed in range(30):
        copy = perturb(rows, tables, random.Random(seed))
        connection.execute("DELETE FROM sale")
        connection.execute("DELETE FROM car")
        connection.execute("DELETE FROM maker")
        for table in tables:
            marks = ", ".join("?" * len(table.columns))
            connection.executemany(f"INSERT INTO {table.name} VALUES ({marks})", copy[table.name])
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_values_move_within_their_column_and_keys_do_not(garage):
    tables, rows = real(garage)
    moved = set()
    for seed in range(20):
        copy = perturb(rows, tables, random.Random(seed))
        for table in tables:
            for place in range(len(table.columns)):
                there = {row[place] for row in rows[table.name]}
                assert {row[place] for row in copy[table.name]} <= there
        key = {row[0]: row for row in rows["maker"]}
        moved |= {"maker"} if any(key[row[0]] != row for row in copy["maker"]) else set()
        # Which maker a car has is a reference, and a table with CHECKs stays as it is.
        assert set(copy["car"]) <= set(rows["car"])
    assert moved == {"maker"}


def test_rows_without_a_key_may_repeat(garage):
    tables, rows = real(garage)
    copies = [perturb(rows, tables, random.Random(seed)) for seed in range(20)]
    assert any(max(Counter(copy["sale"]).values(), default=0) > 1 for copy in copies)


def test_a_lucky_match_breaks(garage):
    gold = "SELECT name FROM maker WHERE country = 'JP'"
    pred = "SELECT name FROM maker WHERE id < 3"
    verdict = check_perturbed(gold, pred, garage, copies=30)
    assert (verdict.kind, verdict.source) == ("refuted", "perturbation")
    assert 0 < verdict.broken <= 1 and verdict.cpu_seconds > 0
    assert "perturbed copies" in verdict.reason
    assert replayer.replay(verdict.database, gold, pred).holds
    assert verdict.database.count("INSERT") <= 3
    assert verdict.gold.rows != verdict.pred.rows


def test_the_same_query_in_other_words_holds(garage):
    gold = "SELECT c.model FROM car AS c JOIN maker AS m ON m.id = c.maker WHERE m.country = 'JP'"
    pred = "SELECT model FROM car WHERE maker IN (SELECT id FROM maker WHERE 'JP' = country)"
    verdict = check_perturbed(gold, pred, garage)
    assert verdict.kind == "unknown" and verdict.broken == 0
    assert verdict.reason == "the match holds on all 10 perturbed copies"


def test_a_choice_of_sqlite_breaks_nothing(garage):
    verdict = check_perturbed(
        "SELECT name FROM maker LIMIT 1", "SELECT name FROM maker ORDER BY country LIMIT 1", garage
    )
    assert verdict.kind == "unknown"


def test_the_seed_decides(garage):
    pair = "SELECT name FROM maker WHERE country = 'JP'", "SELECT name FROM maker WHERE id < 3"
    first, again = (check_perturbed(*pair, garage, seed=7) for _ in range(2))
    assert (first.database, first.broken) == (again.database, again.broken)


@pytest.mark.parametrize(
    ("pred", "says"),
    [
        ("SELECT nothing FROM maker", "the predicted query does not run"),
        ("DELETE FROM maker", "the predicted query"),
        ("", "there is no SQL statement"),
    ],
)
def test_queries_that_cannot_be_run_are_unknown(garage, pred, says):
    verdict = check_perturbed("SELECT name FROM maker", pred, garage)
    assert verdict.kind == "unknown" and says in verdict.reason


def test_a_missing_database_is_told(tmp_path):
    with pytest.raises(UserError, match="cannot be"):
        check_perturbed("SELECT 1", "SELECT 2", tmp_path / "none.sqlite")


def test_of_large_tables_what_the_queries_speak_of_comes_first(garage):
    catalog = read_catalog(garage)
    tables = needed_tables(catalog, {"sale"})
    assert [table.name for table in tables] == ["maker", "car", "sale"]
    statement = ["SELECT 1 FROM sale WHERE price = 39000"]
    rows = read_rows(connect_readonly(garage), tables, statement, most=4, rng=random.Random(0))
    assert any(row[1] == 39000 for row in rows["sale"])
    assert len(rows["sale"]) + 1 >= 4 and len(rows["sale"]) <= 6
    cars = {row[0] for row in rows["car"]}
    # With a sale comes its car, and with a car its maker, whose key is a number and not a text.
    assert {row[0] for row in rows["sale"]} <= cars
    assert {int(row[1]) for row in rows["car"]} <= {row[0] for row in rows["maker"]}
