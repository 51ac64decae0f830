"""Rewards: who earns what, and who must not count at all."""

import pytest

from jax_t2sql.grading import Reward, RewardRule, Verdict, reward
from jax_t2sql.text2sql import Ending

ANSWERED = Ending("answered", "SELECT 1", "")


@pytest.mark.parametrize("kind", ["contract_broken", "cut_off"])
def test_no_answer(kind):
    earned = reward(Ending(kind, None, "why"), None)
    assert earned == Reward(-1.0, {"contract": -1.0}, True, "why")
    # A verdict there may be by accident changes nothing.
    assert reward(Ending(kind, None, "why"), Verdict("equal")).total == -1.0


@pytest.mark.parametrize(
    ("status", "total"),
    [("equal", 1.0), ("different", 0.0), ("error", 0.0), ("timeout", 0.0), ("too_large", 0.0),
     ("refused", 0.0), ("no_query", 0.0), ("crashed", 0.0)],
)  # fmt: skip
def test_answers(status, total):
    assert reward(ANSWERED, Verdict(status)) == Reward(total, {"result": total}, True, status)


@pytest.mark.parametrize("status", ["infrastructure", "gold_error", "gold_empty"])
def test_what_says_nothing_about_the_answer_is_not_valid(status):
    earned = reward(ANSWERED, Verdict(status, matches=True))
    assert (earned.valid, earned.total, earned.terms) == (False, 0.0, {})


def test_values_can_be_chosen():
    rule = RewardRule(unfinished=-0.5, wrong=-0.1, right=2.0, refuted=-0.4)
    assert reward(ANSWERED, Verdict("equal"), rule=rule).total == 2.0
    assert reward(ANSWERED, Verdict("error"), rule=rule).total == -0.1
    assert reward(Ending("cut_off", None, ""), None, rule=rule).total == -0.5
    assert reward(ANSWERED, Verdict("equal"), refuted=True, rule=rule).total == 1.6


def test_being_refuted_costs_a_part():
    earned = reward(ANSWERED, Verdict("equal"), refuted=True)
    assert earned == Reward(0.8, {"result": 1.0, "equivalence": -0.2}, True, "refuted")


def test_not_being_refuted_costs_nothing_and_is_told():
    earned = reward(ANSWERED, Verdict("equal"), refuted=False)
    assert earned == Reward(1.0, {"result": 1.0, "equivalence": 0.0}, True, "equal")


@pytest.mark.parametrize("status", ["different", "error", "timeout"])
def test_only_a_right_result_can_lose_by_being_refuted(status):
    assert reward(ANSWERED, Verdict(status), refuted=True).terms == {"result": 0.0}


def test_further_terms_are_added_to_any_ending():
    further = {"requirement": -0.1, "verification": -0.1}
    earned = reward(ANSWERED, Verdict("equal"), refuted=True, further=further)
    assert earned.total == pytest.approx(0.6)
    assert earned.terms == {"result": 1.0, "equivalence": -0.2} | further
    assert reward(ANSWERED, Verdict("different"), further=further).total == pytest.approx(-0.2)


def test_nothing_is_worse_than_not_finishing_unless_the_floor_is_lifted():
    further = {"requirement": -0.1}
    cut_off = Ending("cut_off", None, "why")
    floored = reward(cut_off, None, further=further)
    assert (floored.total, floored.terms) == (-1.0, {"contract": -1.0} | further)
    lifted = reward(cut_off, None, further=further, rule=RewardRule(floor=None))
    assert lifted.total == pytest.approx(-1.1)


def test_a_further_term_takes_no_name_of_the_rules_own():
    with pytest.raises(ValueError, match="'result' is the rule's own"):
        reward(ANSWERED, Verdict("equal"), further={"result": 1.0})


def test_an_answer_needs_a_verdict():
    with pytest.raises(ValueError, match="needs the verdict"):
        reward(ANSWERED, None)
