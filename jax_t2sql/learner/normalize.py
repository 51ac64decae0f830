"""How the losses of single tokens add up to the loss of a batch."""

from __future__ import annotations

import math
from typing import Literal

import jax
import jax.numpy as jnp

from .batch import LearnerBatch

Normalize = Literal["tokens", "sequences"] | float
"""What the sum over tokens is divided by; never anything of a micro-batch alone.

- "tokens": the number of sampled tokens; all tokens count the same (DAPO, arXiv 2503.14476, §3.3).
- "sequences": each sequence by its own length, then by their number; all sequences count the same
  (GRPO, arXiv 2402.03300, eq. 3).
- a number L: L times the number of sequences; with L the most tokens an answer may have, no length
  is favoured (Dr. GRPO, arXiv 2503.20783).
"""


def check_normalize(normalize: Normalize) -> None:
    """Raises ValueError for anything else."""
    number = isinstance(normalize, int | float) and not isinstance(normalize, bool)
    if normalize not in ("tokens", "sequences") and not (
        number and math.isfinite(normalize) and normalize > 0
    ):
        raise ValueError(
            f'normalize must be "tokens", "sequences" or a positive number of tokens, '
            f"got {normalize!r}"
        )


def slot_weights(batch: LearnerBatch, normalize: Normalize) -> tuple[jax.Array, jax.Array]:
    """(weight in the loss, weight in averages over tokens), both [M, B, N]; 0 in empty slots."""
    mask_MBN = batch.mask_MBN
    per_token = mask_MBN / jnp.maximum(jnp.sum(mask_MBN), 1.0)
    if normalize == "tokens":
        return per_token, per_token
    share_MBN = mask_MBN / jnp.maximum(batch.lengths_MBN, 1.0)  # the shares of a sequence sum to 1
    sequences = jnp.maximum(jnp.sum(share_MBN), 1e-30)
    if normalize == "sequences":
        return share_MBN / sequences, per_token
    return mask_MBN / (normalize * sequences), per_token
