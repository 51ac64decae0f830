"""The small parts that every block is made of."""

from typing import Any

import jax
import jax.numpy as jnp

from jax_t2sql.learner.lora import lora_linear


def linear(layer: dict[str, Any], pairs: dict[str, Any], name: str, x: jax.Array) -> jax.Array:
    """Module `name` of a layer, with its bias and low-rank pair where there are any."""
    module = layer[name]
    y = lora_linear(x, module["kernel"], pairs.get(name))
    return (y + module["bias"] if "bias" in module else y).astype(x.dtype)


def rms_norm(x: jax.Array, scale: jax.Array, eps: float) -> jax.Array:
    """x / rms(x) · scale over the last axis, computed in float32 (arXiv:1910.07467)."""
    wide = x.astype(jnp.float32)
    inverse = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + eps)
    return (wide * inverse).astype(x.dtype) * scale
