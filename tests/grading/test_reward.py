"""Rewards: who earns what, and who must not count at all."""

import pytest

from jax_t2sql.grading import Reward, Verdict, reward
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
    assert reward(ANSWERED, Verdict("equal"), right=2.0).total == 2.0
    assert reward(ANSWERED, Verdict("error"), wrong=-0.1).total == -0.1
    assert reward(Ending("cut_off", None, ""), None, unfinished=-0.5).total == -0.5


def test_an_answer_needs_a_verdict():
    with pytest.raises(ValueError, match="needs the verdict"):
        reward(ANSWERED, None)
