"""Several modes at the price of one: the same verdicts as one by one."""

import pytest

from jax_t2sql.grading import AssessJob, GradeJob, GradingPool
from jax_t2sql.sql import Limits, parse_mode

MODES = tuple(map(parse_mode, ("set", "multiset", "list", "bird", "subset,>=,2")))
STUCK = "SELECT instr(zeroblob(30000000), CAST(zeroblob(10000000) || x'01' AS BLOB))"
PREDICTIONS = (
    "SELECT name FROM item",
    "SELECT name FROM item ORDER BY name ; -- why",
    "SELECT name FROM item UNION ALL SELECT 'pen'",
    "SELECT name FROM item WHERE id = 1",
    "SELECT 'pen' UNION SELECT 'ink' UNION SELECT 'pad'",  # written down
    "SELECT nothing",
    "DROP TABLE item",
    "",
)


@pytest.fixture(scope="module")
def pool():
    with GradingPool(1, limits=Limits(seconds=0.5)) as pool:
        yield pool


def plain(verdicts):
    return [(v.status, v.matches, v.constant) for v in verdicts]


def test_the_verdicts_are_those_of_each_mode(shop, pool):
    golds = ("SELECT name FROM item", "SELECT name FROM item WHERE id > 5", "SELECT nothing")
    jobs = [AssessJob(shop, gold, pred, MODES) for gold in golds for pred in PREDICTIONS]
    singly = [GradeJob(j.db_path, j.gold_sql, j.pred_sql, mode) for j in jobs for mode in MODES]
    found = pool.assess_many(jobs)
    assert plain(v for a in found for v in a.verdicts) == plain(pool.grade_many(singly))
    similar = [assessment.soft_f1 for assessment in found]
    assert similar[:2] == [1.0, 0.0] and similar[5:8] == [0.0] * 3
    assert similar[-len(PREDICTIONS) :] == [None] * len(PREDICTIONS)


def test_what_is_stuck_or_missing_is_told_for_every_mode(shop, tmp_path, pool):
    jobs = [
        AssessJob(shop, "SELECT name FROM item", STUCK, MODES[:2]),
        AssessJob(shop, "SELECT 1", "SELECT 1", MODES[:2]),
        AssessJob(tmp_path / "none.sqlite", "SELECT 1", "SELECT 1", MODES[:2]),
    ]
    stuck, right, missing = pool.assess_many(jobs)
    assert [v.status for v in stuck.verdicts] == ["timeout"] * 2 and stuck.soft_f1 == 0.0
    assert [v.status for v in right.verdicts] == ["equal"] * 2 and right.soft_f1 == 1.0
    assert [v.status for v in missing.verdicts] == ["infrastructure"] * 2
    assert missing.soft_f1 is None
