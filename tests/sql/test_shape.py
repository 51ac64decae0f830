"""Order and skeleton of queries, judged against sqlglot, which reads them independently."""

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from jax_t2sql.sql import fingerprint, is_ordered, skeleton

QUERIES = {
    "SELECT a FROM t ORDER BY a": True,
    "SELECT a FROM t order  by a LIMIT 1;": True,
    "WITH c AS (SELECT a FROM t ORDER BY a) SELECT * FROM c": False,
    "WITH c AS (SELECT a FROM t) SELECT * FROM c ORDER BY 1": True,
    "SELECT a FROM t UNION SELECT b FROM u ORDER BY 1": True,
    "SELECT a FROM (SELECT a FROM t ORDER BY a LIMIT 3)": False,
    "SELECT row_number() OVER (ORDER BY a) FROM t": False,
    "SELECT a FROM t WHERE b = 'ORDER BY a'": False,
    'SELECT "order by" FROM t': False,
    "SELECT a FROM t -- ORDER BY a": False,
}


@pytest.mark.parametrize(("sql", "ordered"), QUERIES.items())
def test_is_ordered(sql, ordered):
    assert is_ordered(sql) is ordered
    assert bool(sqlglot.parse_one(sql, read="sqlite").args.get("order")) is ordered


@given(st.text())
def test_never_raises(sql):
    is_ordered(sql)
    assert len(fingerprint(sql)) == 16


@pytest.mark.parametrize(
    "other",
    [
        "select name from SINGER as t1 where Age > 7 and country = 'Spain' limit 1",
        'SELECT `name` FROM [singer] T1 WHERE age > -2.5e3 AND country = "France" LIMIT +9;',
        "SELECT\n name FROM singer t1 /* c */ WHERE age > 0x1F AND country == 'it''s' LIMIT 10",
    ],
)
def test_fillings_of_one_template_have_one_skeleton(other):
    template = "SELECT name FROM singer AS T1 WHERE age > 30 AND country = 'US' LIMIT 3"
    assert skeleton(other) == skeleton(template)
    assert fingerprint(other) == fingerprint(template)


@pytest.mark.parametrize(
    "other",
    [
        "SELECT name FROM singer WHERE age < 30",
        "SELECT name FROM singer WHERE height > 30",
        "SELECT age FROM singer WHERE age > 30",
        "SELECT name FROM singer WHERE age > 30 ORDER BY name",
        "SELECT name FROM singer WHERE age > height",
    ],
)
def test_other_queries_have_other_skeletons(other):
    assert skeleton(other) != skeleton("SELECT name FROM singer WHERE age > 30")


def test_double_quotes_are_names_unless_compared_with():
    assert skeleton('SELECT "name" FROM "t"') == skeleton("SELECT name FROM t")
    assert skeleton('SELECT count("a"), "b" FROM t') == "select count ( a ) , b from t"
    assert skeleton('SELECT a FROM t WHERE b = "x"') == skeleton("SELECT a FROM t WHERE b = 'y'")
    assert skeleton('SELECT 1 WHERE t."a" = u."a"') == skeleton("SELECT 2 WHERE t.a = u.a")


def test_lists_of_any_length_and_subqueries():
    one = skeleton("SELECT a FROM t WHERE b IN ('x')")
    assert skeleton('SELECT a FROM t WHERE b IN ("y", "z", \'w\')') == one
    assert skeleton("SELECT a FROM t WHERE b IN (SELECT \"c\", 'd' FROM u)") != one
    assert skeleton("SELECT f(1, 2)") != skeleton("SELECT f(1)")


def test_minus_between_operands_stays():
    assert skeleton("SELECT a - 1") == "select a - ?"
    assert skeleton("SELECT (a) - 1") == "select ( a ) - ?"
    assert skeleton("SELECT -1") == "select ?"
