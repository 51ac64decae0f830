"""Golds whose answer is partly chance are found, and others are left in peace."""

import pytest

from jax_t2sql.sql import execute, parse_mode
from jax_t2sql.sql.ties import order_warnings, read_ordering


@pytest.fixture
def sports(make_database):
    """Four players, two of whom tie for second place and one without a score."""
    return make_database(
        """
        CREATE TABLE player (name TEXT, score INTEGER, team TEXT);
        INSERT INTO player VALUES ('Ann', 9, 'x'), ('Bo', 7, 'x'),
            ('Cy', 7, 'y'), ('Di', NULL, 'y');
        """
    )


def warn(path, sql, mode="set"):
    gold = execute(path, sql)
    assert gold.ok, gold.message
    return order_warnings(sql, gold, parse_mode(mode), lambda other: execute(path, other))


@pytest.mark.parametrize(
    ("sql", "mode", "told"),
    [
        ("SELECT name FROM player ORDER BY score DESC LIMIT 2", "set", ["rows 2 and 3"]),
        ("SELECT name FROM player ORDER BY score DESC LIMIT 1, 1", "set", ["rows 2 and 3"]),
        ("SELECT name FROM player ORDER BY score DESC LIMIT 1 OFFSET 2", "set", ["rows 2 and 3"]),
        ("SELECT name FROM player ORDER BY score DESC LIMIT 1 OFFSET 1;", "set", ["rows 2 and 3"]),
        ("SELECT name FROM player ORDER BY score LIMIT 1", "set", ["NULL"]),
        ("SELECT name FROM player ORDER BY score", "list", ["order is chance"]),
        (
            "SELECT name FROM player ORDER BY score DESC LIMIT 3",
            "list",
            ["order is chance"],
        ),
        (
            "SELECT team, count(*) FROM player GROUP BY team ORDER BY count(*) DESC LIMIT 1",
            "set",
            ["rows 1 and 2"],
        ),
        (
            "SELECT team, count(*) AS n, max(name) FROM player GROUP BY team ORDER BY n LIMIT 1",
            "set",
            ["rows 1 and 2"],
        ),
        (
            "SELECT name AS n FROM player AS p WHERE score IN (7, 9)"
            " ORDER BY p.score DESC, length('a,b') LIMIT 2",
            "set",
            ["rows 2 and 3"],
        ),
    ],
)
def test_chance_is_told(sports, sql, mode, told):
    warnings = warn(sports, sql, mode)
    assert len(warnings) == len(told)
    for warning, words in zip(warnings, told, strict=True):
        assert words in warning


@pytest.mark.parametrize(
    ("sql", "mode"),
    [
        ("SELECT name FROM player ORDER BY score DESC LIMIT 1", "list"),
        ("SELECT name FROM player ORDER BY score DESC LIMIT 3", "set"),
        ("SELECT name FROM player ORDER BY score DESC, name LIMIT 2", "list"),
        ("SELECT score FROM player ORDER BY score DESC LIMIT 2", "list"),  # the same either way
        ("SELECT name FROM player WHERE score > 0 ORDER BY score LIMIT 2", "set"),
        ("SELECT name FROM player ORDER BY score NULLS LAST LIMIT 2", "set"),
        ("SELECT name FROM player ORDER BY score", "set"),  # all rows, in any order
        ("SELECT name FROM player", "list"),
        ("SELECT name FROM player LIMIT 10", "set"),
        ("SELECT max(score) FROM (SELECT score FROM player ORDER BY score LIMIT 2)", "set"),
    ],
)
def test_no_false_alarm(sports, sql, mode):
    assert warn(sports, sql, mode) == ()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT DISTINCT name FROM player ORDER BY score LIMIT 2",
        "SELECT name FROM player UNION SELECT team FROM player ORDER BY 1 LIMIT 2",
        "SELECT name FROM player ORDER BY 1 LIMIT 2",
        "SELECT name FROM player ORDER BY score LIMIT 1 + 1",
        "SELECT 1 ORDER BY 1",
        "SELECT name FROM player ORDER",
        "SELECT name FROM player ORDER BY",
        "SELECT FROM ORDER BY LIMIT",
        "",
        "ORDER BY FROM SELECT",
    ],
)
def test_other_shapes_are_not_looked_into(sql):
    assert read_ordering(sql) is None


def test_a_rewriting_that_fails_or_changes_the_answer_says_nothing(sports):
    sql = "SELECT name s FROM player ORDER BY s LIMIT 2"  # `s` is no column to reveal
    assert warn(sports, sql) == ()
    sql = "SELECT name FROM player ORDER BY random() LIMIT 2"
    assert all("tie" not in warning for warning in warn(sports, sql))
