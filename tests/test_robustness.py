"""Evidence withheld or changed: deterministic, in the shares asked for, plausible and wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_t2sql.config import RobustnessConfig
from jax_t2sql.robustness import evidence_of_task, wrong_evidence
from jax_t2sql.text2sql.evidence import evidence_pieces

OTHERS = [
    "charter schools refers to Charter = 1",
    "Alameda is a county; young refers to age < 12",
    "gender = 'F'",
]


def test_shares_are_kept_and_follow_from_the_seed():
    config = RobustnessConfig(evidence_withheld=0.2, evidence_wrong=0.1)
    found = [evidence_of_task(seed, config) for seed in range(4000)]
    assert found == [evidence_of_task(seed, config) for seed in range(4000)]
    assert found.count("withheld") / 4000 == pytest.approx(0.2, abs=0.02)
    assert found.count("wrong") / 4000 == pytest.approx(0.1, abs=0.02)
    assert {evidence_of_task(seed, RobustnessConfig()) for seed in range(99)} == {"own"}


def test_one_piece_is_changed_and_looks_like_evidence():
    own = "adult refers to age > 17; sex = 'M'"
    seen = {wrong_evidence(own, OTHERS, seed) for seed in range(200)}
    assert own not in seen and None not in seen
    for text in seen:
        pieces = evidence_pieces(text)
        assert len(pieces) == 2 and sum(p in evidence_pieces(own) for p in pieces) == 1
    assert "adult refers to Charter = 1; sex = 'M'" in seen, "another term's definition"
    assert "adult refers to age > 17; sex = 'F'" in seen, "another value"
    assert "adult refers to age > 18; sex = 'M'" in seen, "another number"


@pytest.mark.parametrize(
    ("own", "others", "found"),
    [
        ("see the manual", OTHERS, True),  # becomes a piece of another question
        ("see the manual", [], False),
        ("", OTHERS, False),
        ("see the manual", ["see the manual"], False),
    ],
)
def test_where_a_piece_cannot_be_changed(own, others, found):
    assert (wrong_evidence(own, others, 1) is not None) == found


texts = st.text(st.sampled_from("ab;='\"1 .<refers to is"), max_size=30)


@given(texts, st.lists(texts, max_size=3), st.integers(0, 2**32 - 1))
def test_whatever_the_evidence_what_comes_is_other_evidence(own, others, seed):
    new = wrong_evidence(own, others, seed)
    assert new == wrong_evidence(own, others, seed)
    assert new is None or evidence_pieces(new) != evidence_pieces(own)
