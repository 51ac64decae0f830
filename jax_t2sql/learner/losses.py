r"""Token losses: what one sampled token contributes, as pure functions of a few arrays.

A loss maps the learner's log-probs, the sampler's log-probs and the advantages of N tokens to N
losses and to a dict of per-token measurements. The learner adds the losses up over the whole batch,
however it is cut into micro-batches, and divides as its `normalize` says. A measurement is averaged
over all sampled tokens; if its name ends in ``_max`` the largest one is reported, and from
``ratio_square`` the effective sample size ``ess`` is made. Losses that stay near a reference policy
take its log-probs as a fourth array.

Throughout, r = π(token) / π_sampler(token) is the importance ratio, and all bounds are values of r,
not distances from 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

Metrics = dict[str, jax.Array]
LossFn = Callable[..., tuple[jax.Array, Metrics]]
"""(logprobs_N, sampler_logprobs_N, advantages_N[, reference_logprobs_N]) -> (loss_N, metrics of
shape N). The fourth array is given if the batch has one. A loss with the attribute `uses_sampler`
= False may get whatever stands in place of missing sampler log-probs."""


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

    def loss(logprobs_N, sampler_logprobs_N, advantages_N, reference_logprobs_N=None):
        ratio_N = jnp.exp(jax.lax.stop_gradient(logprobs_N) - sampler_logprobs_N)
        weight_N = jnp.clip(ratio_N, low, high)
        outside_N = (ratio_N < low) | (ratio_N > high)
        loss_N = -weight_N * advantages_N * logprobs_N
        return loss_N, _measure(logprobs_N, sampler_logprobs_N, ratio_N, outside_N)

    return loss


def grpo(*, low: float = 0.8, high: float = 1.2, kl: float = 0.0) -> LossFn:
    r"""PPO's clipped surrogate with group-relative advantages: −min(r · A, clip(r, low, high) · A).

    GRPO, eq. 3 (DeepSeekMath, arXiv 2402.03300). A token whose ratio has left the bounds in the
    direction of its advantage gets no gradient.

    Args:
      kl: weight of the divergence from a reference policy, added to the loss of each token as
        q − log q − 1 with q = π_ref / π (eq. 4), which is unbiased and never negative. Not 0: the
        batch must hold `reference_logprobs_MBN`.

    >>> logprobs_N = jnp.log(jnp.array([0.5, 0.5]))
    >>> sampler_N = jnp.log(jnp.array([0.25, 0.25]))                 # ratio 2
    >>> loss_N, metrics = grpo()(logprobs_N, sampler_N, jnp.array([1.0, -1.0]))
    >>> [round(float(x), 3) for x in loss_N]
    [-1.2, 2.0]
    >>> [float(c) for c in metrics["clip_fraction"]]
    [1.0, 0.0]
    >>> _, metrics = grpo(kl=0.1)(logprobs_N, sampler_N, jnp.zeros(2), logprobs_N)
    >>> [float(x) for x in metrics["reference_kl"]]
    [0.0, 0.0]
    """
    _check_bounds("grpo", low, high)
    if not (kl >= 0.0 and math.isfinite(kl)):
        raise ValueError(f"grpo needs a finite kl of at least 0, got {kl}")

    def loss(logprobs_N, sampler_logprobs_N, advantages_N, reference_logprobs_N=None):
        ratio_N = jnp.exp(logprobs_N - sampler_logprobs_N)
        free_N = ratio_N * advantages_N
        bounded_N = jnp.clip(ratio_N, low, high) * advantages_N
        loss_N = -jnp.minimum(free_N, bounded_N)
        metrics = _measure(logprobs_N, sampler_logprobs_N, ratio_N, bounded_N < free_N)
        if kl:
            if reference_logprobs_N is None:
                raise ValueError(
                    f"grpo(kl={kl}) needs the log-probs of a reference policy: put "
                    "learner.logprobs(base, reference, batch) into batch.reference_logprobs_MBN"
                )
            log_q_N = reference_logprobs_N - logprobs_N
            kl_N = jnp.exp(log_q_N) - log_q_N - 1.0
            loss_N += kl * kl_N
            metrics["reference_kl"] = jax.lax.stop_gradient(kl_N)
        return loss_N, metrics

    return loss


def dapo(*, low: float = 0.8, high: float = 1.28) -> LossFn:
    r"""`grpo` with DAPO's higher upper bound and no KL term (arXiv 2503.14476, §3.1).

    The rest of DAPO is elsewhere: `normalize="tokens"` (§3.3) and `drop_zero_signal=True` (§3.2) of
    `make_learner`. For Dr. GRPO (arXiv 2503.20783) take `grpo()` with `normalize` a number of
    tokens and `group_advantages` without division by the standard deviation.

    >>> loss_N, _ = dapo()(jnp.log(jnp.array([0.5])), jnp.log(jnp.array([0.4])), jnp.ones(1))
    >>> [round(float(x), 3) for x in loss_N]                         # ratio 1.25 is not clipped
    [-1.25]
    """
    return grpo(low=low, high=high)


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

    def loss(logprobs_N, sampler_logprobs_N, advantages_N, reference_logprobs_N=None):
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

    def loss(logprobs_N, sampler_logprobs_N, advantages_N, reference_logprobs_N=None):
        return -logprobs_N, {}

    loss.uses_sampler = False
    return loss


def _measure(logprobs_N, sampler_logprobs_N, ratio_N, clipped_N) -> Metrics:
    """What tells how far learner and sampler are apart.

    `logprob_gap` is |log π − log π_sampler|: 0 up to rounding while both are one policy.
    `sampler_kl` averages to KL(π_sampler ‖ π), estimated by r − log r − 1 (Schulman, "Approximating
    KL divergence", 2020).
    """
    log_ratio_N = logprobs_N - sampler_logprobs_N
    metrics = {
        "ratio_mean": ratio_N,
        "ratio_max": ratio_N,
        "ratio_square": ratio_N * ratio_N,
        "clip_fraction": clipped_N.astype(jnp.float32),
        "logprob_gap": jnp.abs(log_ratio_N),
        "sampler_kl": jnp.exp(log_ratio_N) - log_ratio_N - 1.0,
    }
    return jax.lax.stop_gradient(metrics)


def _check_bounds(name: str, low: float, high: float) -> None:
    if not (0.0 <= low < high and math.isfinite(high)):
        raise ValueError(
            f"{name} needs ratio bounds 0 <= low < high < infinity, got low={low}, high={high}; "
            "they are values of the ratio, so that 1 ± 0.2 is low=0.8, high=1.2"
        )
