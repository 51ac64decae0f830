"""What a request comes to whose worker was killed or died."""

import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.grading.fates import unfailed, when_dead, when_stuck
from jax_t2sql.grading.requests import CheckGold, Execute, Failed, Grade, Probe
from jax_t2sql.grading.verdict import Verdict
from jax_t2sql.sql import Mode

SET = Mode("set")
GRADE = Grade("x.sqlite", "SELECT 1", "SELECT 2", SET)
EXECUTE = Execute("x.sqlite", "SELECT 1")
CHECK = CheckGold("x.sqlite", "SELECT 1", SET)
PROBE = Probe("x.sqlite", "SELECT 1", Verdict("timeout"))


@pytest.mark.parametrize(
    ("request_", "stage", "stuck", "dead"),
    [
        (EXECUTE, "prediction", "timeout", "error"),
        (GRADE, "gold", "gold_error", "infrastructure"),
        (GRADE, "probe", "infrastructure", "infrastructure"),
        (GRADE, "comparison", "too_large", None),
        (CHECK, "gold", "gold_error", "gold_error"),
        (PROBE, "probe", "infrastructure", "infrastructure"),
    ],
)
def test_by_request_and_stage(request_, stage, stuck, dead):
    assert when_stuck(request_, stage, 3.0).status == stuck
    if dead:
        assert when_dead(request_, stage, "exit status -9").status == dead


def test_a_prediction_is_not_blamed_before_the_gold_has_been_tried():
    stuck = when_stuck(GRADE, "prediction", 3.0)
    assert isinstance(stuck, Probe) and stuck.verdict.status == "timeout"
    for stage in ("prediction", "comparison"):
        dead = when_dead(GRADE, stage, "exit status -9")
        assert (dead.path, dead.gold_sql) == (GRADE.path, GRADE.gold_sql)
        assert dead.verdict.status == "crashed" and "-9" in dead.verdict.detail


def test_failures_are_told_to_graders_and_raised_to_others():
    failed = Failed("no such file", is_users=True)
    assert unfailed(GRADE, failed) == Verdict("infrastructure", "no such file")
    with pytest.raises(UserError, match="no such file"):
        unfailed(EXECUTE, failed)
    with pytest.raises(RuntimeError, match="a fault"):
        unfailed(EXECUTE, Failed("a fault", is_users=False))
    assert unfailed(GRADE, Verdict("equal")) == Verdict("equal")
