import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_t2sql.learner import cispo, dapo, grpo, policy_gradient, sft
from jax_t2sql.learner.logprobs import logprobs_and_entropy

RNG = np.random.default_rng(0)
LOGPROBS_N = -RNG.uniform(0.01, 6.0, 64).astype(np.float32)
SAMPLER_N = -RNG.uniform(0.01, 6.0, 64).astype(np.float32)
ADVANTAGES_N = RNG.normal(size=64).astype(np.float32)


def gradient(loss):
    def total(logprobs_N):
        return jnp.sum(loss(logprobs_N, SAMPLER_N, ADVANTAGES_N)[0])

    return np.asarray(jax.grad(total)(jnp.asarray(LOGPROBS_N)))


def test_no_token_is_dropped_by_cispos_clip():
    loss = cispo(low=0.5, high=1.5)
    clipped_N = loss(LOGPROBS_N, SAMPLER_N, ADVANTAGES_N)[1]["clip_fraction"]
    assert 0.3 < clipped_N.mean() < 1.0
    weight_N = np.clip(np.exp(LOGPROBS_N - SAMPLER_N), 0.5, 1.5)
    np.testing.assert_allclose(gradient(loss), -weight_N * ADVANTAGES_N, rtol=1e-5)
    assert (gradient(loss) != 0).all()


def test_grpo_drops_exactly_the_tokens_it_reports_as_clipped():
    loss = grpo(low=0.8, high=1.28)
    clipped_N = loss(LOGPROBS_N, SAMPLER_N, ADVANTAGES_N)[1]["clip_fraction"]
    np.testing.assert_array_equal(gradient(loss) == 0, clipped_N == 1)
    assert 0 < clipped_N.mean() < 1


def test_dapo_lets_ratios_rise_further_than_grpo():
    jax.tree.map(
        np.testing.assert_array_equal,
        dapo()(LOGPROBS_N, SAMPLER_N, ADVANTAGES_N),
        grpo(low=0.8, high=1.28)(LOGPROBS_N, SAMPLER_N, ADVANTAGES_N),
    )


def test_the_divergence_from_a_reference_adds_to_the_gradient():
    reference_N = -RNG.uniform(0.01, 6.0, 64).astype(np.float32)

    def total(logprobs_N, loss):
        return jnp.sum(loss(logprobs_N, SAMPLER_N, ADVANTAGES_N, reference_N)[0])

    without, with_kl = (jax.grad(total)(LOGPROBS_N, grpo(kl=kl)) for kl in (0.0, 0.1))
    # d/dx of exp(r - x) - (r - x) - 1 is 1 - exp(r - x): zero where the policies agree.
    expected_N = 0.1 * (1 - np.exp(reference_N - LOGPROBS_N))
    np.testing.assert_allclose(with_kl - without, expected_N, rtol=1e-3, atol=1e-4)
    metrics = grpo(kl=0.1)(LOGPROBS_N, SAMPLER_N, ADVANTAGES_N, reference_N)[1]
    assert (metrics["reference_kl"] >= 0).all()
    with pytest.raises(ValueError, match="needs the log-probs of a reference policy"):
        grpo(kl=0.1)(LOGPROBS_N, SAMPLER_N, ADVANTAGES_N)
    with pytest.raises(ValueError, match="finite kl of at least 0, got -1"):
        grpo(kl=-1.0)


def test_log_probs_and_entropy_equal_plain_autodiff():
    logits_NV = jnp.asarray(RNG.normal(size=(6, 17)) * 5, jnp.float32)
    targets_N, weights_N = jnp.arange(6), jnp.asarray(RNG.normal(size=6), jnp.float32)

    def plain(logits_NV):
        log_softmax_NV = jax.nn.log_softmax(logits_NV)
        entropy_N = -jnp.sum(jnp.exp(log_softmax_NV) * log_softmax_NV, axis=-1)
        return log_softmax_NV[jnp.arange(6), targets_N], entropy_N

    def ours(logits_NV):
        return logprobs_and_entropy(logits_NV, targets_N)

    for got, want in zip(ours(logits_NV), plain(logits_NV), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    gradients = [jax.grad(lambda x, f=f: jnp.sum(f(x)[0] * weights_N))(logits_NV)
                 for f in (ours, plain)]  # fmt: skip
    np.testing.assert_allclose(*gradients, rtol=1e-4, atol=1e-6)
    low = ours(logits_NV.astype(jnp.bfloat16))[0]
    assert low.dtype == jnp.float32


def test_truncated_policy_gradient_is_cispo_without_a_lower_bound():
    for ours, theirs in zip(
        policy_gradient(truncation=3.0)(LOGPROBS_N, SAMPLER_N, ADVANTAGES_N),
        cispo(low=0.0, high=3.0)(LOGPROBS_N, SAMPLER_N, ADVANTAGES_N),
        strict=True,
    ):
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)
    np.testing.assert_allclose(gradient(policy_gradient()), -ADVANTAGES_N)


def test_sft_ignores_sampler_and_advantages():
    np.testing.assert_array_equal(gradient(sft()), -1.0)


def test_ratios_beyond_float_range_stay_clipped():
    loss_N, _ = cispo(low=0.0, high=4.0)(jnp.array([-1.0]), jnp.array([-500.0]), jnp.ones(1))
    assert loss_N.tolist() == [4.0]


@pytest.mark.parametrize("make", [cispo, grpo])
@pytest.mark.parametrize("bounds", [(-0.1, 2.0), (2.0, 1.0), (0.0, float("inf"))])
def test_impossible_bounds_are_refused(make, bounds):
    with pytest.raises(ValueError, match=f"low={bounds[0]}, high={bounds[1]}"):
        make(low=bounds[0], high=bounds[1])
    with pytest.raises(ValueError, match="policy_gradient"):
        policy_gradient(truncation=-1.0)


@pytest.mark.parity
@pytest.mark.parametrize(("low", "high"), [(0.0, 4.0), (0.8, 1.2)])
def test_cispo_agrees_with_an_independent_torch_implementation(low, high):
    torch = pytest.importorskip(
        "torch", reason="CISPO PARITY WITH TORCH NOT CHECKED: pip install -e '.[parity]'"
    )
    logits_NV = RNG.normal(size=(64, 17)).astype(np.float32)
    targets_N = RNG.integers(0, 17, 64)

    leaf = torch.tensor(logits_NV, requires_grad=True)
    policy = torch.distributions.Categorical(logits=leaf).log_prob(torch.tensor(targets_N))
    ratio = (policy.detach() - torch.tensor(SAMPLER_N)).exp()
    surrogate = torch.minimum(torch.maximum(ratio, torch.tensor(low)), torch.tensor(high))
    expected = -(surrogate * torch.tensor(ADVANTAGES_N) * policy)
    expected.mean().backward()

    def mean_loss(logits_NV):
        logprobs_N = jax.nn.log_softmax(logits_NV)[jnp.arange(64), targets_N]
        loss_N, metrics = cispo(low=low, high=high)(logprobs_N, SAMPLER_N, ADVANTAGES_N)
        return loss_N.mean(), (loss_N, metrics)

    grad_NV, (loss_N, metrics) = jax.grad(mean_loss, has_aux=True)(jnp.asarray(logits_NV))
    np.testing.assert_allclose(loss_N, expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(grad_NV, leaf.grad.numpy(), rtol=1e-4, atol=1e-7)
    clipped = ((ratio < low) | (ratio > high)).float().numpy()
    np.testing.assert_array_equal(metrics["clip_fraction"], clipped)
