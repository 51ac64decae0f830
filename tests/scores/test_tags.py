import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_t2sql.scores import tags
from jax_t2sql.scores.tags import TAGS, structure_tags

CASES = {
    "SELECT a FROM t": "single table",
    "SELECT a FROM x, y WHERE x.i = y.i": "join",
    "SELECT a FROM x LEFT JOIN y ON x.i = y.i": "join, outer join",
    "SELECT count(DISTINCT a) FROM t GROUP BY b HAVING count(*) > 1":
        "single table, aggregate, group by, having, distinct",
    "SELECT max(a, 2) FROM t": "single table",
    "SELECT a FROM t WHERE b IN (SELECT b FROM u)": "subquery",
    "SELECT a FROM t UNION SELECT b FROM u": "set operation",
    "WITH c AS (SELECT 1) SELECT * FROM c": "CTE",
    "SELECT rank() OVER (ORDER BY a) FROM t": "single table, window, order",
    "SELECT a / 2 FROM t ORDER BY a LIMIT 3": "single table, order, limit, arithmetic",
    "SELECT iif(a, 1, 2) FROM t WHERE b IS NOT NULL": "single table, case, null",
    "SELECT ifnull(a, 1) FROM t WHERE b LIKE 'x%'": "single table, null, like",
    "SELECT strftime('%Y', a) FROM t": "single table, date",
    "SELEC a": "unparsed",
    "": "unparsed",
    "SELECT 1; SELECT 2": "unparsed",
    "DROP TABLE t": "unparsed",
    "(" * 5000: "unparsed",
}  # fmt: skip


@pytest.mark.parametrize(("sql", "expected"), CASES.items(), ids=lambda text: str(text)[:40])
def test_tags_by_hand(sql, expected):
    assert ", ".join(structure_tags(sql)) == expected


@given(st.text(max_size=80) | st.text(alphabet="SELECTFROM a,()'\";*", max_size=60))
def test_no_text_makes_it_raise(sql):
    assert set(structure_tags(sql)) <= set(TAGS)


def test_real_golds_are_read(data_dir, sample):
    path = data_dir / "spider_dev" / "questions.jsonl"
    rows = sample([json.loads(line) for line in path.open()], 150)
    found = {tag for row in rows for tag in structure_tags(row["SQL"])}
    assert "unparsed" not in found and {"join", "aggregate", "subquery"} <= found
    assert tags.parse(rows[0]["SQL"]) is not None
