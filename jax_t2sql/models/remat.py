"""What of a layer is kept for the backward pass, and what is computed again."""

from collections.abc import Callable
from typing import Literal

import jax

from jax_t2sql.models.attention import SAVED
from jax_t2sql.models.config import ModelConfig

Remat = Literal["auto", "none", "dots", "layer"]

# Activations of a micro-batch up to this size are kept rather than computed twice.
KEEP_BYTES = 2**30


def rematerialised(layer: Callable, config: ModelConfig, remat: Remat, *, tokens: int) -> Callable:
    """The layer with the chosen trade of memory for arithmetic.

    Args:
      remat: "none" keeps all activations; "dots" keeps the results of matrix products and computes
        the cheap rest again; "layer" keeps the layer's input only, at the price of another forward
        pass. "auto": "none" if the activations of all layers fit in 1 GiB, else "layer".
      tokens: in the micro-batch.

    Raises:
      ValueError: an unknown choice.
    """
    if remat == "auto":
        remat = "none" if activation_bytes(config, tokens) <= KEEP_BYTES else "layer"
    match remat:
        case "none":
            return layer
        case "dots":
            policies = jax.checkpoint_policies
            keep = policies.save_from_both_policies(
                policies.dots_with_no_batch_dims_saveable, policies.save_only_these_names(SAVED)
            )
            return jax.checkpoint(layer, policy=keep)
        case "layer":
            return jax.checkpoint(layer)
    raise ValueError(f"remat {remat!r} is unknown: use 'auto', 'none', 'dots' or 'layer'")


def activation_bytes(config: ModelConfig, tokens: int) -> int:
    """About what plain differentiation keeps of so many tokens, in float32."""
    heads = config.num_heads * config.head_dim
    inner = config.intermediate_size
    if config.moe is not None:
        used = config.moe.experts_per_token * config.moe.expert_size + config.moe.shared_size
        inner = max(inner, used)
    return 4 * tokens * config.num_layers * (8 * config.hidden_size + 6 * heads + 5 * inner)
