"""What search reads out of queries."""

import json

import pytest

from jax_t2sql.equivalence.catalog import read_catalog
from jax_t2sql.equivalence.outline import outline, outline_of_check

CATALOG = read_catalog("CREATE TABLE t (a, b, c); CREATE TABLE u (a, d)")


def equal(query):
    found = outline(query, CATALOG)
    named = [[(found.tables[n], column) for n, column in pair] for pair in found.equal]
    return {tuple(sorted(pair)) for pair in named}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1 FROM t JOIN u ON t.a = u.a",
        'SELECT 1 FROM t x, u y WHERE y.A = x."a"',
        "SELECT 1 FROM t JOIN u USING (a)",
        "SELECT 1 FROM t NATURAL JOIN u",
        "SELECT 1 FROM t WHERE a IN (SELECT a FROM u)",
        "SELECT 1 FROM t WHERE a = (SELECT max(a) FROM u)",
        "SELECT 1 FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a)",
        "WITH w AS (SELECT a AS k FROM u) SELECT 1 FROM t JOIN w ON w.k = t.a",
        "SELECT 1 FROM t JOIN (SELECT * FROM u) z ON z.a = t.a",
        "SELECT a FROM t INTERSECT SELECT a FROM u",
    ],
)
def test_columns_that_meet(query):
    assert equal(query) == {(("t", "a"), ("u", "a"))}


def atoms(query):
    found = outline(query, CATALOG)
    return [
        (a.operator, [(found.tables[n], c) for n, c in a.refs], list(a.direct), list(a.inner))
        for a in found.atoms
    ]


def test_literals_belong_to_columns():
    assert atoms("SELECT 1 FROM t x WHERE x.a >= -5 AND b LIKE 'p%'") == [
        (">=", [("t", "a")], [-5], []),
        ("LIKE", [("t", "b")], ["p%"], []),
    ]
    assert atoms("SELECT 1 FROM t WHERE strftime('%Y', b) = '1990'") == [
        ("=", [("t", "b")], ["1990"], ["%Y"])
    ]
    assert atoms("SELECT sum(a IN (1, 2)), CASE c WHEN 'x' THEN 1 END FROM t") == [
        ("IN", [("t", "a")], [1, 2], []),
        ("IN", [("t", "c")], ["x"], []),
    ]
    assert atoms('SELECT 1 FROM t WHERE a = "text"') == [("=", [("t", "a")], ["text"], [])]
    assert atoms("WITH w AS (SELECT b AS k FROM t) SELECT 1 FROM w WHERE k BETWEEN 1 AND 2") == [
        ("BETWEEN", [("t", "b")], [1, 2], [])
    ]


def test_sizes_that_queries_ask_about():
    assert outline("SELECT a FROM t LIMIT 3 OFFSET 2", CATALOG).sizes == [5]
    assert outline("SELECT a FROM t GROUP BY a HAVING count(b) > 4", CATALOG).sizes == [4]
    counted = "WITH w AS (SELECT count(*) AS n FROM t) SELECT 1 FROM w WHERE n > 7"
    assert outline(counted, CATALOG).sizes == [7]


BARE = [
    "SELECT a, b FROM t GROUP BY a",
    "SELECT a, max(b) FROM t",
    "SELECT * FROM t GROUP BY a",
    "SELECT count(*) FROM t ORDER BY a",
    "SELECT a FROM t GROUP BY a HAVING b > 1",
    "SELECT t.a FROM t JOIN u GROUP BY u.a",
    "SELECT 1 FROM t WHERE a IN (SELECT d FROM u GROUP BY a)",
    "SELECT (((",
]
NOT_BARE = [
    "SELECT a, count(b) FROM t GROUP BY a ORDER BY max(c)",
    "SELECT a + 1, b AS k, sum(c) FROM t GROUP BY a + 1, k",
    "SELECT a, sum(b) FROM t GROUP BY 1",
    "SELECT count(*), max(a) - min(b) FROM t",
    "SELECT a, b FROM t ORDER BY c",
    "SELECT a, (SELECT max(d) FROM u WHERE u.a = t.a) FROM t",
]


@pytest.mark.parametrize("query", BARE + NOT_BARE)
def test_bare_columns_are_seen(query):
    assert outline(query, CATALOG).bare == (query in BARE)


def test_a_check_is_read_as_a_condition_of_its_table():
    found = outline_of_check("a IN ('p', 'q')", "t", CATALOG)
    assert found.tables == ["t"] and found.atoms[0].direct == ("p", "q")


@pytest.mark.parametrize("text", ["", "SELECT", "SELECT 1 FROM", "((((", "SELECT * FROM nosuch n"])
def test_what_cannot_be_read_has_no_atoms(text):
    assert outline(text, CATALOG).atoms == []


def test_real_queries_are_read(data_dir):
    read = 0
    for line in (data_dir / "equivalence" / "bird_pairs.jsonl").read_text().splitlines()[:120]:
        row = json.loads(line)
        catalog = read_catalog(row["schema"])
        found = outline(row["sql1"], catalog)
        read += bool(found.tables)
    assert read >= 118
