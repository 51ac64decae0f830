r"""Token losses: what one sampled token contributes, as pure functions of three arrays.

A loss maps the learner's log-probs, the sampler's log-probs and the advantages of N tokens to N
losses and to a dict of per-token measurements. The learner sums over the whole batch and divides by
the number of sampled tokens, Σ loss / Σ mask, however the batch is cut into micro-batches
(token-level normalisation, DAPO §3.3, arXiv 2503.14476). A measurement is averaged over the same
tokens; if its name ends in ``_max`` the largest one is reported.

Throughout, r = π(token) / π_sampler(token) is the importance ratio, and all bounds are values of r,
not distances from 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

Metrics = dict[str, jax.Array]
LossFn = Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, Metrics]]
"""(logprobs_N, sampler_logprobs_N, advantages_N) -> (loss_N, metrics of shape N)."""


def cispo(*, low: float = 0.0, high: float = 4.0) -> LossFn:
    r"""Clipped importance-sampling weight: −sg(clip(r, low, high)) · A · log π.

    The clip bounds the weight of a token and never its gradient path: unlike in PPO every token
    keeps a gradient, however far the policies have drifted. MiniMax-M1, §3.1, eqs. 4–5
    (arXiv 2506.13585); there the bounds are written 1 − ε_low and 1 + ε_high.

    >>> logprobs_N = jnp.log(jnp.array([0.5, 0.5, 0.5]))
    >>> sampler_N = jnp.log(jnp.array([0.5, 0.25, 0.05]))           # ratios 1, 2 and 10
    >>> loss_N, metrics = cispo(low=0.0, high=4.0)(logprobs_N, sampler_N, jnp.ones(3))
    >>> [round(float(w), 3) for w in loss_N / -logprobs_N]           # 10 is cut to 4
    [1.0, 2.0, 4.0]
    >>> [float(c) for c in metrics["clip_fraction"]]
    [0.0, 0.0, 1.0]
    """
    _check_bounds("cispo", low, high)

    def loss(logprobs_N, sampler_logprobs_N, advantages_N):
        ratio_N = jnp.exp(jax.lax.stop_gradient(logprobs_N) - sampler_logprobs_N)
        weight_N = jnp.clip(ratio_N, low, high)
        outside_N = (ratio_N < low) | (ratio_N > high)
        loss_N = -weight_N * advantages_N * logprobs_N
        return loss_N, _measure(logprobs_N, sampler_logprobs_N, ratio_N, outside_N)

    return loss


def grpo(*, low: float = 0.8, high: float = 1.2) -> LossFn:
    r"""PPO's clipped surrogate with group-relative advantages: −min(r · A, clip(r, low, high) · A).

    GRPO, eq. 3 without the KL term (DeepSeekMath, arXiv 2402.03300). A higher upper bound,
    `grpo(low=0.8, high=1.28)`, is DAPO's clip-higher (arXiv 2503.14476, §3.1). A token whose ratio
    has left the bounds in the direction of its advantage gets no gradient.

    >>> logprobs_N = jnp.log(jnp.array([0.5, 0.5]))
    >>> sampler_N = jnp.log(jnp.array([0.25, 0.25]))                 # ratio 2
    >>> loss_N, metrics = grpo()(logprobs_N, sampler_N, jnp.array([1.0, -1.0]))
    >>> [round(float(x), 3) for x in loss_N]
    [-1.2, 2.0]
    >>> [float(c) for c in metrics["clip_fraction"]]
    [1.0, 0.0]
    """
    _check_bounds("grpo", low, high)

    def loss(logprobs_N, sampler_logprobs_N, advantages_N):
        ratio_N = jnp.exp(logprobs_N - sampler_logprobs_N)
        free_N = ratio_N * advantages_N
        bounded_N = jnp.clip(ratio_N, low, high) * advantages_N
        loss_N = -jnp.minimum(free_N, bounded_N)
        return loss_N, _measure(logprobs_N, sampler_logprobs_N, ratio_N, bounded_N < free_N)

    return loss


def policy_gradient(*, truncation: float | None = None) -> LossFn:
    r"""REINFORCE, −w · A · log π, with w = 1 or a truncated importance weight w = sg(min(r, C)).

    Without `truncation` this is on-policy REINFORCE (Williams 1992). With `truncation` = C it
    corrects for a sampler that lags behind (truncated importance sampling, Ionides 2008), and then
    equals `cispo(low=0, high=C)`.

    >>> logprobs_N = jnp.log(jnp.array([0.5, 0.5]))
    >>> sampler_N = jnp.log(jnp.array([0.5, 0.1]))                   # ratios 1 and 5
    >>> loss_N, _ = policy_gradient()(logprobs_N, sampler_N, jnp.ones(2))
    >>> [round(float(w), 3) for w in loss_N / -logprobs_N]
    [1.0, 1.0]
    >>> loss_N, _ = policy_gradient(truncation=2.0)(logprobs_N, sampler_N, jnp.ones(2))
    >>> [round(float(w), 3) for w in loss_N / -logprobs_N]
    [1.0, 2.0]
    """
    if truncation is not None:
        _check_bounds("policy_gradient", 0.0, truncation)
        return cispo(low=0.0, high=truncation)

    def loss(logprobs_N, sampler_logprobs_N, advantages_N):
        ratio_N = jnp.exp(jax.lax.stop_gradient(logprobs_N) - sampler_logprobs_N)
        loss_N = -advantages_N * logprobs_N
        return loss_N, _measure(logprobs_N, sampler_logprobs_N, ratio_N, jnp.zeros_like(ratio_N))

    return loss


def sft() -> LossFn:
    r"""Supervised fine-tuning: the negative log-likelihood −log π of every target token, in nats.

    Sampler log-probs and advantages are ignored, so no ratio is measured.

    >>> loss_N, metrics = sft()(jnp.log(jnp.array([1.0, 0.5])), jnp.zeros(2), jnp.zeros(2))
    >>> [round(float(x), 3) for x in loss_N + 0.0], metrics
    ([0.0, 0.693], {})
    """
    return lambda logprobs_N, sampler_logprobs_N, advantages_N: (-logprobs_N, {})


def _measure(logprobs_N, sampler_logprobs_N, ratio_N, clipped_N) -> Metrics:
    """`logprob_gap` is |log π − log π_sampler|: 0 up to rounding while both are one policy."""
    metrics = {
        "ratio_mean": ratio_N,
        "ratio_max": ratio_N,
        "clip_fraction": clipped_N.astype(jnp.float32),
        "logprob_gap": jnp.abs(logprobs_N - sampler_logprobs_N),
    }
    return jax.lax.stop_gradient(metrics)


def _check_bounds(name: str, low: float, high: float) -> None:
    if not (0.0 <= low < high and math.isfinite(high)):
        raise ValueError(
            f"{name} needs ratio bounds 0 <= low < high < infinity, got low={low}, high={high}; "
            "they are values of the ratio, so that 1 ± 0.2 is low=0.8, high=1.2"
        )
