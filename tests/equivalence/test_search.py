"""The search, step by step."""

import time

import pytest

from jax_t2sql.equivalence.catalog import read_catalog
from jax_t2sql.equivalence.search import Search
from jax_t2sql.sql import parse_mode

CATALOG = read_catalog(
    "CREATE TABLE p (x INTEGER PRIMARY KEY, k TEXT NOT NULL CHECK (k IN ('u', 'v')));"
    "CREATE TABLE c (a INT NOT NULL REFERENCES p, n INT CHECK (n % 2 = 0))"
)


def later(seconds=2.0):
    return time.thread_time() + seconds


def test_it_can_be_continued_and_counts():
    gold, pred = "SELECT n FROM c", "SELECT n FROM c WHERE n IS NOT 1"
    with Search(gold, pred, CATALOG, mode=parse_mode("set")) as search:
        assert search.run(later(), databases=30) is None and search.tried == 30
        assert search.run(later(), databases=30) is None and search.tried == 60
        assert search.reason == "no difference on 60 small databases"


def test_checks_are_kept():
    gold, pred = "SELECT k, n FROM c JOIN p ON a = x", "SELECT 'u', n FROM c"
    with Search(gold, pred, CATALOG, mode=parse_mode("set")) as search:
        found = search.run(later())
    assert found.source == "search" and found.rows["p"][0][1] == "v"
    assert all(n is None or n % 2 == 0 for _, n in found.rows["c"])


def test_rows_from_elsewhere_are_judged_and_minimised():
    gold, pred = "SELECT x FROM p", "SELECT x FROM p WHERE k = 'u'"
    with Search(gold, pred, CATALOG, mode=parse_mode("set")) as search:
        rows = {"p": [(n, "uv"[n % 2]) for n in range(6)], "c": []}
        found = search.propose(rows, "proof", deadline=later())
        assert found.source == "proof" and len(found.rows["p"]) == 1
        assert search.propose({"p": [(1, "u")], "c": []}, "proof", deadline=later()) is None


def test_chance_is_counted_as_such():
    gold, pred = "SELECT n FROM c LIMIT 1", "SELECT max(n) FROM c HAVING count(*) > 0"
    with Search(gold, pred, CATALOG, mode=parse_mode("set")) as search:
        assert search.run(later(), databases=300) is None
        assert search.free > 0 and "free to make" in search.reason


@pytest.mark.parametrize("seed", [0, 1])
def test_one_seed_finds_one_database(seed):
    found = []
    for _ in range(2):
        with Search(
            "SELECT n FROM c WHERE n > 3", "SELECT n FROM c WHERE n > 4", CATALOG,
            mode=parse_mode("set"), seed=seed,
        ) as search:  # fmt: skip
            found.append(search.run(later()))
    assert found[0] == found[1] and found[0].rows["c"] == [(found[0].rows["p"][0][0], 4)]


def test_slow_queries_end_with_the_time():
    slow = (
        "WITH RECURSIVE f(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM f WHERE i < 9000)"
        " SELECT max(i) + {} FROM f, p GROUP BY x LIMIT 1"
    )
    start = time.thread_time()
    with Search(slow.format(1), slow.format("x"), CATALOG, mode=parse_mode("set")) as search:
        search.run(start + 0.2)
    assert search.tried > 0 and time.thread_time() - start < 5


def test_natural_joins_read_what_they_join():
    catalog = read_catalog("CREATE TABLE t (k, a); CREATE TABLE u (k, b)")
    gold, pred = "SELECT a FROM t NATURAL JOIN u", "SELECT a FROM t WHERE 0"
    with Search(gold, pred, catalog, mode=parse_mode("set")) as search:
        assert search.run(later()) is not None
