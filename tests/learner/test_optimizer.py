import jax.numpy as jnp
import numpy as np
import pytest

from jax_t2sql.learner import make_optimizer, warmup_cosine


def test_schedule_rises_linearly_and_falls_as_a_cosine():
    lr = warmup_cosine(peak_lr=2.0, warmup_steps=4, total_steps=24, final_fraction=0.1)
    rates = np.array([lr(count) for count in range(30)])
    np.testing.assert_allclose(rates[:4], [0.5, 1.0, 1.5, 2.0], rtol=1e-6)
    progress = np.arange(21) / 20
    cosine = 2.0 * (0.1 + 0.9 * 0.5 * (1 + np.cos(np.pi * progress)))
    np.testing.assert_allclose(rates[3:24], cosine, rtol=1e-5)
    np.testing.assert_allclose(rates[23:], 0.2, rtol=1e-5)


@pytest.mark.parametrize("warmup", [0, 1])
def test_the_first_update_is_not_wasted(warmup):
    assert float(warmup_cosine(peak_lr=1.0, warmup_steps=warmup, total_steps=5)(0)) == 1.0


@pytest.mark.parametrize(("warmup", "total"), [(-1, 5), (5, 5), (0, 0)])
def test_impossible_schedules_are_refused(warmup, total):
    with pytest.raises(ValueError, match=f"warmup_steps={warmup} .* total_steps={total}"):
        warmup_cosine(peak_lr=1.0, warmup_steps=warmup, total_steps=total)


def test_gradients_are_clipped_by_their_global_norm():
    optimizer = make_optimizer(peak_lr=0.1, warmup_steps=0, total_steps=9, clip_norm=1.0)
    params = {"a": jnp.zeros(2), "b": jnp.zeros(1)}
    _, state = optimizer.update(
        {"a": jnp.array([30.0, 0.0]), "b": jnp.array([40.0])}, optimizer.init(params), params
    )
    mu = state[1][0].mu  # first moment, (1 - b1) · clipped gradient
    np.testing.assert_allclose([*mu["a"], *mu["b"]], [0.06, 0.0, 0.08], rtol=1e-5)
