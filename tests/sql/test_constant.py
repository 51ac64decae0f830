"""Answers that were written down are told from answers that were looked up."""

import pytest

from jax_t2sql.sql import execute, is_constant


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'pen'",
        "SELECT 1, 2.5, -3, NULL, x'00'",
        "VALUES ('pen'), ('ink')",
        "SELECT 'pen' UNION SELECT 'ink'",
        "WITH a(n) AS (SELECT 'pen') SELECT n FROM a",
        "SELECT value FROM json_each('[1, 2]')",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 3) SELECT n FROM r",
        "SELECT 'pen' FROM item LIMIT 1",
        "SELECT 'pen' AS name, 1.5 price FROM item WHERE name = 'pen'",
        "SELECT DISTINCT 'pen' FROM item",
        'SELECT "pen" FROM item LIMIT 1',
        "SELECT (1 + 2) * 3, abs(-2), upper('pen'), CAST('1' AS INTEGER) FROM item",
        "SELECT CASE WHEN 1 THEN 'a' ELSE 'b' END FROM item",
        "SELECT 'pen' FROM item UNION SELECT 'ink' FROM item",
        "SELECT 5 WHERE (SELECT count(*) FROM item) > 0",
        "-- a guess\nSELECT 'pen' FROM sale",
    ],
)
def test_constant(shop, sql):
    outcome = execute(shop, sql)
    assert outcome.ok, outcome.message
    assert is_constant(sql, outcome.reads)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT name FROM item",
        "SELECT count(*) FROM item",
        "SELECT count(1), 'x' FROM item",
        "SELECT (SELECT count(*) FROM item)",
        "SELECT 1 + id FROM item",
        "SELECT upper(name) FROM item",
        'SELECT "name" FROM item',
        'SELECT "NAME" FROM item',
        "SELECT 'x' || [name] FROM item",
        "SELECT 'pen', * FROM item",
        "SELECT 'pen' UNION SELECT name FROM item",
        "SELECT 'x' FROM item UNION ALL SELECT name FROM item",
        "WITH a AS (SELECT name FROM item) SELECT name FROM a",
        "SELECT name FROM dear",
        "SELECT row_number() OVER () FROM item",
        "SELECT EXISTS (SELECT 1 FROM item WHERE name = 'pen')",
        "SELECT sql FROM sqlite_master",
        "SELECT max(price) FROM item",
    ],
)
def test_looked_up(shop, sql):
    outcome = execute(shop, sql)
    assert outcome.ok, outcome.message
    assert not is_constant(sql, outcome.reads)
