"""Rows out of real databases."""

import random
import sqlite3

import pytest

from jax_t2sql.equivalence.arena import Arena
from jax_t2sql.equivalence.catalog import read_catalog
from jax_t2sql.equivalence.grow import pattern
from jax_t2sql.equivalence.outline import outline
from jax_t2sql.equivalence.plan import make_plan
from jax_t2sql.equivalence.real import RealRows
from jax_t2sql.equivalence.replay import as_script, violation
from jax_t2sql.errors import UserError

QUERY = "SELECT town FROM person JOIN place ON home = code WHERE age > 30 AND town LIKE 'T1%'"


@pytest.fixture(params=[60, 5_000])
def path(request, tmp_path):
    path = tmp_path / "real.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "CREATE TABLE place (code TEXT PRIMARY KEY, town TEXT NOT NULL, note TEXT);"
            "CREATE TABLE person (id INTEGER PRIMARY KEY, home TEXT REFERENCES place, age INT);"
        )
        places = [(f"c{n}", f"T{n}", "x" * n) for n in range(40)]
        connection.executemany("INSERT INTO place VALUES (?, ?, ?)", places)
        people = [(n, f"c{n % 40}", 20 + n % 50 if n % 9 else None) for n in range(request.param)]
        connection.executemany("INSERT INTO person VALUES (?, ?, ?)", people)
        connection.execute("INSERT INTO person VALUES (99999, 'nowhere', 41)")  # an orphan
    connection.close()
    return path


def test_drawn_rows_are_real_and_keep_the_constraints(path):
    catalog = read_catalog(path)
    with Arena(catalog.ddl, catalog.tables) as arena, RealRows(path) as real:
        found = outline(QUERY, catalog)
        plan = make_plan(catalog, arena.reads(QUERY), [found])
        rng = random.Random(0)
        answered = 0
        for _ in range(60):
            rows = real.draw(plan, [pattern(found, plan)], rng)
            assert violation(as_script(catalog, rows)) == ""
            for code, town, note in rows["place"]:
                assert town == "T" + code[1:] and note is None  # nobody reads the note
            for number, home, age in rows["person"]:
                assert home == f"c{number % 40}"
                assert age == (20 + number % 50 if number % 9 else None)
            arena.load(rows)
            answered += bool(arena.run(QUERY))
    assert answered > 5


def test_pools_know_nulls_and_duplicates(path):
    place, person = read_catalog(path).tables
    with RealRows(path) as real:
        code, town, age = real.pool(place, 0), real.pool(place, 1), real.pool(person, 2)
        assert code.unique and not code.has_null
        assert age.has_null and not age.unique
        assert set(town.values) == {f"T{n}" for n in range(40)}
        assert real.pool(person, 0).holds(43) and not real.pool(person, 0).holds(43_000)


def test_a_database_of_another_schema_has_no_rows(path, tmp_path):
    table = read_catalog("CREATE TABLE other (a)").tables[0]
    with RealRows(path) as real:
        assert real.pool(table, 0).values == ()
    with pytest.raises(UserError):
        RealRows(tmp_path / "missing.sqlite")
