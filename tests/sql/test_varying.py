"""Queries whose answer may be another one tomorrow."""

import pytest

from jax_t2sql.sql.varying import is_varying


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT CURRENT_TIMESTAMP",
        "SELECT date('NOW', '-1 day')",
        "SELECT date ( )",
        "SELECT time()",
        "SELECT julianday()",
        "SELECT unixepoch()",
        "SELECT strftime('%Y') - 1",
        'SELECT strftime("%Y")',
        "SELECT name FROM t ORDER BY random()",
        "SELECT hex(randomblob(4))",
    ],
)
def test_the_clock_and_chance(sql):
    assert is_varying(sql)


@pytest.mark.parametrize(
    "sql",
    ["SELECT date(born) FROM t", "SELECT strftime('%Y', born) FROM t", "SELECT time FROM t",
     "SELECT count(DISTINCT day) FROM t"],
)  # fmt: skip
def test_what_is_stored(sql):
    assert not is_varying(sql)
