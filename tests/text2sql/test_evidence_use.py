import doctest
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_t2sql.text2sql import evidence_use as module
from jax_t2sql.text2sql.evidence_use import EvidenceUse, evidence_use, named_in


@pytest.mark.parametrize(
    ("evidence", "columns", "values"),
    [
        ("cheap refers to unit_price < 5", {"unit_price"}, {"5"}),
        ("in 2007 refers to Year = 2007", {"year"}, {"2007"}),
        ("ratio = DIVIDE(COUNT(paperId), 12)", {"paperid"}, {"12"}),
        ("'Ada  L.' is the FullName of the author", {"fullname"}, {"ada l."}),
        ("the owner refers to `Owner Name`; ;", {"owner name"}, set()),
        ("male refers to t.sex = 'M' and kind LIKE '%x%'", {"sex", "kind"}, {"m", "%x%"}),
        ("the most refers to the largest amount", set(), set()),
        ("", set(), set()),
    ],
)
def test_what_knowledge_names(evidence, columns, values):
    assert named_in(evidence) == (columns, values)


def test_words_of_the_gold_query_are_columns_too():
    assert named_in("the most refers to the largest amount", known="SELECT max(amount) FROM t") == (
        {"amount"},
        set(),
    )


def test_use_is_seen_in_the_query_whatever_its_layout():
    evidence = "Dutch refers to lang = 'nl'; long refers to page_count > 500"
    use = evidence_use(evidence, "select * from b where \"LANG\"='NL' -- page_count > 500")
    assert use == EvidenceUse(named=4, found=2) and use.share == 0.5
    assert evidence_use("", "SELECT 1").share is None


@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=40))
def test_no_more_is_found_than_named(evidence, sql, known):
    use = evidence_use(evidence, sql, known=known)
    assert 0 <= use.found <= use.named


def test_gold_queries_use_what_their_own_knowledge_names(data_dir, sample):
    """On published questions the gold holds most of it, and another question's gold does not."""
    lines = (data_dir / "bird_platinum" / "bird_verified_train.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, sample(lines, 400)) if row["evidence"]]
    own = [evidence_use(r["evidence"], r["SQL"], known=r["SQL"]).share for r in rows]
    others = [
        evidence_use(row["evidence"], other["SQL"], known=row["SQL"]).share
        for row, other in zip(rows, rows[1:], strict=False)
    ]
    own, others = ([share for share in found if share is not None] for found in (own, others))
    assert len(own) > 0.9 * len(rows)
    assert sum(own) / len(own) > 0.85
    assert sum(others) / len(others) < 0.3


def test_the_examples_in_the_docstrings():
    assert doctest.testmod(module).failed == 0
