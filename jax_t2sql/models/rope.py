"""Rotary position embeddings (Su et al. 2021, arXiv:2104.09864), half-split layout."""

import jax
import jax.numpy as jnp
import numpy as np

from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.rope_scaling import (
    DynamicScaling,
    FrequencyFactors,
    LinearScaling,
    Llama3Scaling,
    YarnScaling,
    inverse_frequencies,
    llama3_frequencies,
    yarn_frequencies,
)


def rope_tables(config: ModelConfig, positions_BT: jax.Array) -> tuple[jax.Array, jax.Array]:
    """cos and sin of every rotation angle, each float32 [B, T, rotated / 2]."""
    plain_F = inverse_frequencies(config.rope_theta, config.rotated)
    positions_BT1 = positions_BT[..., None].astype(jnp.float32)
    amplitude = 1.0
    match config.rope_scaling:
        case None:
            angles_BTF = positions_BT1 * plain_F
        case LinearScaling(factor=factor):
            angles_BTF = positions_BT1 * (plain_F / np.float32(factor))
        case Llama3Scaling() as scaling:
            angles_BTF = positions_BT1 * llama3_frequencies(plain_F, scaling)
        case YarnScaling(attention_factor=amplitude) as scaling:
            angles_BTF = positions_BT1 * yarn_frequencies(plain_F, scaling, theta=config.rope_theta)
        case FrequencyFactors(factors=factors):
            angles_BTF = positions_BT1 * (plain_F / np.asarray(factors, np.float32))
        case DynamicScaling() as scaling:
            angles_BTF = _dynamic_angles(config, scaling, positions_BT1)
    return amplitude * jnp.cos(angles_BTF), amplitude * jnp.sin(angles_BTF)


def _dynamic_angles(config: ModelConfig, scaling: DynamicScaling, positions_BT1: jax.Array):
    original, dim = scaling.original_max_position_embeddings, config.rotated
    length_BT1 = jnp.maximum(positions_BT1 + 1, original)
    stretch_BT1 = scaling.factor * length_BT1 / original - (scaling.factor - 1)
    theta_BT1 = config.rope_theta * stretch_BT1 ** (dim / (dim - 2))
    exponents_F = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    return positions_BT1 / theta_BT1**exponents_F


def apply_rope(x_BTHK: jax.Array, cos_BTF: jax.Array, sin_BTF: jax.Array) -> jax.Array:
    """Rotates the pairs (x[i], x[i + F]), i < F, of every head; keeps the rest and the dtype."""
    cos_BT1F, sin_BT1F = cos_BTF[:, :, None, :], sin_BTF[:, :, None, :]
    rotated = 2 * cos_BTF.shape[-1]
    first, second = jnp.split(x_BTHK[..., :rotated].astype(jnp.float32), 2, axis=-1)
    turned = (first * cos_BT1F - second * sin_BT1F, second * cos_BT1F + first * sin_BT1F)
    x_BTHF = jnp.concatenate(turned, axis=-1).astype(x_BTHK.dtype)
    if rotated == x_BTHK.shape[-1]:
        return x_BTHF
    return jnp.concatenate([x_BTHF, x_BTHK[..., rotated:]], axis=-1)
