import json
import sqlite3

import pytest
import sqlglot

from data_pipelines.corruption import KINDS, corrupt
from jax_t2sql.errors import UserError
from jax_t2sql.sql import Limits, Sandbox, parse_mode, read_schema, resolve_database, results_equal
from jax_t2sql.text2sql import Problem, load_problems


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("databases")
    with sqlite3.connect(folder / "shop.sqlite") as connection:
        connection.executescript(
            "CREATE TABLE maker (id INTEGER PRIMARY KEY, land TEXT);"
            "CREATE TABLE item (name TEXT, price INTEGER, maker_id INTEGER REFERENCES maker(id));"
            "INSERT INTO maker VALUES (1, 'NL'), (2, 'FR');"
            "INSERT INTO item VALUES ('pen', 2, 1), ('pen', 9, 2), ('ink', 9, 1), ('pad', 3, 2);"
        )
    connection.close()
    return folder


JOINED = "SELECT name FROM item JOIN maker ON maker_id = maker.id WHERE land = 'NL' AND price > 5"


@pytest.mark.parametrize(
    ("kind", "sql", "wanted"),
    [
        ("lost DISTINCT", "SELECT DISTINCT name FROM item", {"SELECT name FROM item"}),
        (
            "lost DISTINCT",
            "SELECT COUNT(DISTINCT name) FROM item",
            {"SELECT COUNT(name) FROM item"},
        ),
        (
            "ties cut by LIMIT",
            "SELECT name FROM item WHERE price = (SELECT MAX(price) FROM item)",
            {
                "SELECT name FROM item ORDER BY price DESC LIMIT 1",
                "SELECT name FROM item WHERE price = (SELECT MAX(price) FROM item) LIMIT 1",
            },
        ),
        (
            "wrong predicate",
            "SELECT name FROM item WHERE price > 5 AND name = 'pen'",
            {
                "SELECT name FROM item WHERE price < 5 AND name = 'pen'",
                "SELECT name FROM item WHERE price > 5 AND name <> 'pen'",
                "SELECT name FROM item WHERE price > 5",
                "SELECT name FROM item WHERE name = 'pen'",
            },
        ),
        ("missing join", JOINED, {"SELECT name FROM item WHERE price > 5"}),
        (
            "wrong column",
            "SELECT SUM(price) FROM item",
            {"SELECT SUM(name) FROM item", "SELECT SUM(maker_id) FROM item"},
        ),
    ],
)
def test_each_kind_is_one_change(kind, sql, wanted, shop):
    schema = read_schema(shop / "shop.sqlite")
    tree = sqlglot.parse_one(sql, read="sqlite")
    found = {changed.sql(dialect="sqlite") for changed in KINDS[kind](tree, schema)}
    assert found == wanted
    assert tree == sqlglot.parse_one(sql, read="sqlite"), "the gold itself stays as it was"


@pytest.mark.parametrize("kind", ["lost DISTINCT", "missing join", "wrong predicate"])
def test_a_kind_that_has_no_place_changes_nothing(kind, shop):
    tree = sqlglot.parse_one("SELECT name FROM item", read="sqlite")
    assert not list(KINDS[kind](tree, read_schema(shop / "shop.sqlite")))


def problems(sqls, grading="multiset"):
    return [
        Problem(question_id=str(n), db_id="shop", question="?", gold_sql=sql, grading=grading)
        for n, sql in enumerate(sqls)
    ]


def test_a_change_without_effect_is_no_corruption(shop):
    # Under set grading the doubles do not count; without ties LIMIT 1 does not either.
    unharmed = problems(["SELECT DISTINCT name FROM item"], grading="set")
    with pytest.raises(UserError, match="only 0 of 1 golds"):
        corrupt(unharmed, shop, share=1, seed=0, kinds=["lost DISTINCT"])
    with pytest.raises(UserError, match="share is 2"):
        corrupt(unharmed, shop, share=2, seed=0)


def test_half_of_the_golds_are_wrong_in_all_ways_and_differ(data_dir, sample):
    """On published questions over real databases."""
    folder = data_dir / "spider_dev" / "database"
    path = data_dir / "spider_dev" / "questions.jsonl"
    found = sample(
        [p for p in load_problems(path) if p.db_id in ("concert_singer", "pets_1", "car_1")], 120
    )
    made = corrupt(found, folder, share=0.5, seed=1)
    assert (
        made
        == corrupt(found, folder, share=0.5, seed=1)
        != corrupt(found, folder, share=0.5, seed=2)
    )
    assert len(made.kinds) == round(len(found) / 2) and set(made.kinds.values()) == set(KINDS)
    for old, new in zip(found, made.problems, strict=True):
        assert (old.gold_sql != new.gold_sql) == (old.question_id in made.kinds)
        if old.question_id in made.kinds:
            with Sandbox(resolve_database(folder, old.db_id), limits=Limits()) as sandbox:
                one, other = (sandbox.execute(p.gold_sql) for p in (old, new))
            assert one.ok and other.ok
            assert not results_equal(one.rows, other.rows, parse_mode(old.grading)), new
    assert json.dumps(made.kinds)
