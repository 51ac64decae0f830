import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_t2sql.learner import group_advantages

rewards = st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=16)


@settings(deadline=None)
@given(rewards=rewards, data=st.data())
def test_valid_members_are_centred_and_others_get_nothing(rewards, data):
    valid_G = np.array(data.draw(st.lists(st.booleans(), min_size=len(rewards),
                                          max_size=len(rewards))))  # fmt: skip
    advantages_G, zero_signal = group_advantages(np.array(rewards), valid_G)
    assert advantages_G.dtype == np.float32
    assert (advantages_G[~valid_G] == 0).all()
    if zero_signal:
        assert (advantages_G == 0).all()
    else:
        expected = np.array(rewards)[valid_G] - np.mean(np.array(rewards)[valid_G])
        np.testing.assert_allclose(advantages_G[valid_G], expected, atol=1e-6)


def test_groups_without_variance_are_reported():
    assert group_advantages(np.zeros(8))[1]
    assert group_advantages(np.array([0.7, 0.8 - 0.1]))[1]  # equal up to rounding
    assert group_advantages(np.array([1.0, 0.0]), np.array([True, False]))[1]
    assert not group_advantages(np.array([1.0, 0.0, 0.0]))[1]


def test_invalid_rewards_may_be_anything_and_valid_ones_may_not():
    advantages_G, _ = group_advantages(np.array([1.0, 0.0, np.nan]), np.array([True, True, False]))
    assert advantages_G.tolist() == [0.5, -0.5, 0.0]
    with pytest.raises(ValueError, match="must be finite"):
        group_advantages(np.array([1.0, np.nan]))
    with pytest.raises(ValueError, match="equally long"):
        group_advantages(np.zeros(2), np.ones(3, bool))


def test_dividing_by_the_deviation_gives_unit_variance():
    advantages_G, _ = group_advantages(np.array([1.0, 0.0, 0.0, -0.3]), divide_by_std=True)
    assert np.isclose(advantages_G.std(), 1.0)
