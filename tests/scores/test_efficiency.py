import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_t2sql.scores.efficiency import reward_of


@pytest.mark.parametrize(
    ("ratio", "reward"),
    [(9, 1.25), (2, 1.25), (1.99, 1), (1, 1), (0.99, 0.75), (0.5, 0.75), (0.49, 0.5),
     (0.25, 0.5), (0.24, 0.25), (0.001, 0.25)],
)  # fmt: skip
def test_the_published_steps(ratio, reward):
    assert reward_of([ratio]) == reward_of([ratio] * 10) == reward


def test_an_outlier_does_not_count():
    assert reward_of([1.2] * 12 + [50.0]) == 1
    assert reward_of([1.2] * 5 + [50.0]) == 1.25  # with so few it is within three deviations


@given(st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=20), st.floats(1.0, 10.0))
def test_quicker_is_never_worth_less(ratios, factor):
    assert reward_of([ratio * factor for ratio in ratios]) >= reward_of(ratios)
