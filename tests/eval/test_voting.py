"""Votes and pass@k against counting everything."""

import itertools
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_t2sql.eval.voting import Candidate, pass_at_k, result_digest, self_consistency, vote
from jax_t2sql.sql import Outcome


@given(flags=st.lists(st.booleans(), min_size=1, max_size=9), data=st.data())
def test_pass_at_k_counts_all_choices(flags, data):
    k = data.draw(st.integers(1, len(flags)))
    choices = list(itertools.combinations(flags, k))
    exact = Fraction(sum(any(choice) for choice in choices), len(choices))
    assert pass_at_k(len(flags), sum(flags), k) == pytest.approx(float(exact), abs=1e-12)


def test_pass_at_k_of_what_cannot_be():
    with pytest.raises(ValueError, match="cannot be"):
        pass_at_k(3, 1, 4)


A, B, WRONG, FAILED = (
    Candidate(1, "a", True),
    Candidate(2, "b", False),
    Candidate(3, "c", False),
    Candidate(4, None, False),
)


def test_the_largest_group_wins_and_failures_have_no_vote():
    assert vote([FAILED, FAILED, A], random.Random(0)) == [None, None, A]
    winners = vote([B, A, A], random.Random(0))
    assert (winners[0], winners[2]) == (B, A)
    assert vote([FAILED], random.Random(0)) == [None]


def test_ties_are_broken_at_random():
    ties = [vote([A, B], random.Random(seed))[1] for seed in range(400)]
    assert 140 < ties.count(A) < 260


def test_the_curve_of_one_certain_and_one_lost_question():
    found = self_consistency({"good": [A] * 4, "bad": [B, B, WRONG, FAILED]}, seed=0)
    assert found["n"] == [1, 2, 3, 4]
    assert found["accuracy"] == pytest.approx([0.5] * 4)
    assert found["pass_at_k"] == [0.5] * 4
    assert found["by_question"] == {"good": 1.0, "bad": 0.0}
    assert found["winners"] == {"good": 1, "bad": 2}
    assert all(low < 0.5 < high for low, high in zip(found["low"], found["high"], strict=True))


def test_the_curve_is_the_mean_over_choices():
    candidates = {f"q{i}": [A, A, B] for i in range(600)}
    found = self_consistency(candidates, seed=1)
    assert found["accuracy"][0] == pytest.approx(2 / 3, abs=0.03)
    # Of two: a pair of A (1/3), or A and B (2/3) and then a coin.
    assert found["accuracy"][1] == pytest.approx(2 / 3, abs=0.03)
    assert found["accuracy"][2] == pytest.approx(1.0)
    assert self_consistency(candidates, seed=1) == found


def test_questions_with_fewer_candidates_vote_with_all_they_have():
    found = self_consistency({"few": [A], "many": [B, B, B]}, seed=0)
    assert found["accuracy"] == pytest.approx([0.5] * 3) and found["pass_at_k"] == [0.5] * 3


def outcome(*rows):
    return Outcome("ok", ("c",) * len(rows[0]) if rows else ("c",), list(rows))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([(1, "a"), (2, "b")], [(2, "b"), (1, "a"), (1, "a")], True),
        ([(1,)], [(1.0,)], True),
        ([(0.1 + 0.2,)], [(0.3,)], True),
        ([(1,)], [("1",)], False),
        ([(None,)], [("",)], False),
        ([(b"\x01",)], [("01",)], False),
        ([("a", "b")], [("b", "a")], False),
        ([(2**53 + 1,)], [(2**53,)], False),
    ],
)
def test_results_are_grouped_as_sets_of_rows(one, other, same):
    assert (result_digest(outcome(*one)) == result_digest(outcome(*other))) == same


def test_an_empty_result_is_one_and_a_failure_is_none():
    assert result_digest(outcome()) is not None
    assert result_digest(Outcome("error", message="no such table")) is None
