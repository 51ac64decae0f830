import doctest
import json

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from jax_t2sql.sql import profile as module
from jax_t2sql.sql.profile import FACETS, Profile, differences, profile

QUERIES = {
    "SELECT a FROM t": {"tables": {"t"}},
    'SELECT a FROM main.t AS x, "Two Words" y': {"tables": {"t", "two words"}, "joins": 1},
    "SELECT a FROM t LEFT OUTER JOIN u ON t.i = u.i JOIN v USING (i, j)": {
        "tables": {"t", "u", "v"},
        "joins": 2,
    },
    "SELECT a, (SELECT max(b) FROM u), c FROM (SELECT x, y FROM v), w": {
        "tables": {"u", "v", "w"},
        "joins": 1,
        "aggregates": {"max"},
        "subqueries": 2,
    },
    "WITH c(p, q) AS (SELECT a, b FROM t), d AS MATERIALIZED (SELECT 1) SELECT * FROM c JOIN d": {
        "tables": {"t"},
        "joins": 1,
        "ctes": 2,
    },
    "SELECT CAST(sum(a) AS REAL) / COUNT(DISTINCT b), strftime('%Y', d) FROM t": {
        "tables": {"t"},
        "aggregates": {"sum", "count"},
        "functions": {"cast", "strftime"},
        "distinct": True,
    },
    "SELECT a FROM t UNION ALL SELECT a FROM u EXCEPT SELECT a FROM v": {
        "tables": {"t", "u", "v"},
        "set_operations": ("union", "except"),
    },
    "SELECT rank() OVER (PARTITION BY a ORDER BY b), c FROM t, u": {
        "tables": {"t", "u"},
        "joins": 1,
        "functions": {"rank"},
        "windows": 1,
    },
    "SELECT a FROM t WHERE b IN (1, 2) AND c IS NOT DISTINCT FROM d AND EXISTS (SELECT 1 FROM u)": {
        "tables": {"t", "u"},
        "subqueries": 1,
    },
    "SELECT 'FROM x JOIN y' -- FROM z": {},
    "SELECT a FROM t GROUP BY a, b ORDER BY c, d": {"tables": {"t"}},
    "SELECT a FROM (t JOIN u ON t.i = u.i)": {"tables": {"t", "u"}, "joins": 1},
}


@pytest.mark.parametrize("sql", QUERIES)
def test_profile(sql):
    wanted = {
        name: frozenset(value) if isinstance(value, set) else value
        for name, value in QUERIES[sql].items()
    }
    assert profile(sql) == Profile(**wanted)


def test_layout_case_and_quotes_do_not_matter():
    assert not differences(
        "select A from T join U using(i)", 'SELECT x\nFROM "t" JOIN `u` USING (i)'
    )


def test_every_facet_can_differ():
    richest = (
        "WITH c AS (SELECT 1) SELECT DISTINCT upper(a), max(b), rank() OVER (ORDER BY a) FROM t, u"
        " WHERE a IN (SELECT x FROM v) UNION SELECT 1, 2, 3"
    )
    assert differences("SELECT 1", richest) == set(FACETS)


@given(st.text(alphabet="SELCTFROMJINABU ,()'\"`;-", max_size=60))
def test_any_text_has_a_profile(sql):
    assert isinstance(profile(sql), Profile)


def test_a_parser_finds_the_same_in_published_queries(data_dir, sample):
    """Tables, joins, aggregates, DISTINCT and set operations of gold queries, by sqlglot."""
    lines = (data_dir / "spider_dev" / "questions.jsonl").read_text().splitlines()
    for line in sample(lines, 200):
        sql = json.loads(line)["SQL"]
        tree = sqlglot.parse_one(sql, read="sqlite")
        named = {table.name.lower() for table in tree.find_all(exp.Table)}
        found = profile(sql)
        assert found.tables == named, sql
        assert found.joins == len(list(tree.find_all(exp.Join))), sql
        kinds = {node.sql_name().lower() for node in tree.find_all(exp.AggFunc)}
        assert found.aggregates == kinds, sql
        assert found.distinct == bool(list(tree.find_all(exp.Distinct))), sql
        assert len(found.set_operations) == len(list(tree.find_all(exp.SetOperation)))


def test_the_examples_in_the_docstrings():
    assert doctest.testmod(module).failed == 0
