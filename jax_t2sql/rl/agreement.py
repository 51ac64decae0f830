"""Whether a sampler computes what the learner does, by tokens of the learner's own version."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from jax_t2sql.config import TrainConfig
from jax_t2sql.learner import SOURCE_TOTALS

# A deviation up to so many tolerances looks like another precision.
_SMALL = 30


@dataclass(frozen=True)
class Agreement:
    """Learner against one sampler, over the tokens sampled with the version that is updated.

    There the two must be one policy: each token's ratio π / π_sampler is 1 but for rounding, which
    has both signs and leaves the means alone. The logarithm is looked at too, since the mean ratio
    of a sampler with other weights, whose log-probs are right for these, tends to 1 all the same;
    its mean log ratio is minus their divergence.

    Attributes:
      tokens: how many there were.
      ratio: mean ratio. log_ratio: mean logarithm of the ratio, in nats.
    """

    tokens: int
    ratio: float
    log_ratio: float

    @property
    def deviation(self) -> float:
        """Of the two means from what they should be, the larger; NaN if one is."""
        apart = abs(self.ratio - 1), abs(self.log_ratio)
        return max(apart) if apart[0] == apart[0] else apart[0]

    def within(self, tolerance: float) -> bool:
        """Whether both means are what they should be; not if one is no number."""
        return abs(self.ratio - 1) <= tolerance and abs(self.log_ratio) <= tolerance


def agreements(metrics: dict[str, Any], samplers: Sequence[str]) -> dict[str, Agreement]:
    """Takes what the learner measured by source out of its metrics.

    Args:
      metrics: of an update, in host memory.
      samplers: names of the sources from 1 on. Those without a token are left out.
    """
    if SOURCE_TOTALS[0] not in metrics:
        return {}
    tokens_S, ratio_S, log_ratio_S = (metrics.pop(name).tolist() for name in SOURCE_TOTALS)
    rows = zip(samplers, tokens_S, ratio_S, log_ratio_S, strict=False)
    return {
        name: Agreement(int(tokens), ratio / tokens, log_ratio / tokens)
        for name, tokens, ratio, log_ratio in rows
        if tokens
    }


def tolerance_of(config: TrainConfig) -> float:
    """How far the means of an `Agreement` may be off: as configured, else what rounding allows.

    Sums of thousands of tokens agree far better than single tokens do. Accelerators round the
    inputs of float32 products.
    """
    if config.sampler.ratio_tolerance is not None:
        return config.sampler.ratio_tolerance
    if config.learner.dtype == "bfloat16" or config.learner.bits is not None:
        return 0.05
    return 0.001 if jax.default_backend() == "cpu" else 0.01


def describe(found: Agreement, tolerance: float) -> str:
    """What was measured of a sampler that deviates, and what to look for."""
    if found.deviation <= _SMALL * tolerance:
        cause = (
            "It is little, as from another precision: compare the server's --dtype and quantisation"
            " with --learner.dtype and --learner.bits, or raise --sampler.ratio-tolerance"
        )
    elif abs(found.ratio - 1) < -found.log_ratio:
        cause = (
            "It is as from other weights or another temperature: compare base model, adapter and"
            " quantisation of the server with the learner's, and see that nothing overrides"
            " temperature 1 and top-p 1"
        )
    else:
        cause = (
            "Its log-probs are not of the distribution that it samples from: see that its server"
            " runs with --logprobs-mode processed_logprobs, at temperature 1 and top-p 1, and"
            " compare base model and adapter with the learner's"
        )
    return (
        f"{found.tokens} tokens sampled with the learner's own version have a mean ratio of"
        f" {found.ratio:.4g} and a mean log ratio of {found.log_ratio:.4g}, which should be 1 and 0"
        f" within {tolerance:g}. {cause}"
    )
