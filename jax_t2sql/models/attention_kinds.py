"""From hidden states to attention's output: grouped-query and latent attention.

Both make queries, keys and values of one width and leave the rest to `attend`, so that training,
decoding and prefix sharing each have one implementation for all families.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.modules import linear, rms_norm
from jax_t2sql.models.rope import apply_rope
from jax_t2sql.models.rope_scaling import YarnScaling

# (q_BTHK, k_BTGK, v_BTGK) -> (out_BTHK, state): what differs between training and decoding. The
# state is whatever the caller wants back from the layer: the cache, or nothing.
Attend = Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, Any]]
Tables = tuple[jax.Array, jax.Array]
"""cos_BTF and sin_BTF of `rope_tables`."""

# Of the norms inside latent attention, whatever the model's own is.
_LATENT_EPS = 1e-6


def self_attention(
    config: ModelConfig,
    layer: dict[str, Any],
    pairs: dict[str, Any],
    h_BTD: jax.Array,
    tables: Tables,
    attend: Attend,
) -> tuple[jax.Array, Any]:
    """The attention part of a layer: its output [B, T, D] and the state that `attend` returned."""
    kind = grouped_query if config.mla is None else latent
    out_BTHV, state = kind(config, layer, pairs, h_BTD, tables, attend)
    batch, length = h_BTD.shape[:2]
    return linear(layer, pairs, "o_proj", out_BTHV.reshape(batch, length, -1)), state


def grouped_query(config, layer, pairs, h_BTD, tables, attend):
    """Grouped-query attention (arXiv:2305.13245), before its output projection."""
    batch, length, _ = h_BTD.shape

    def heads(name: str, count: int) -> jax.Array:
        return linear(layer, pairs, name, h_BTD).reshape(batch, length, count, config.head_dim)

    q_BTHK = heads("q_proj", config.num_heads)
    k_BTGK = heads("k_proj", config.num_kv_heads)
    v_BTGK = heads("v_proj", config.num_kv_heads)
    if config.qk_norm:
        q_BTHK = rms_norm(q_BTHK, layer["q_norm"]["scale"], config.rms_norm_eps)
        k_BTGK = rms_norm(k_BTGK, layer["k_norm"]["scale"], config.rms_norm_eps)
    return attend(apply_rope(q_BTHK, *tables), apply_rope(k_BTGK, *tables), v_BTGK)


def latent(config, layer, pairs, h_BTD, tables, attend):
    """Multi-head latent attention (see `MLAConfig`), before its output projection.

    Keys and values are projected up and given to `attend` as those of any other model: for training
    that is the cheaper order, because every key is used by many queries.
    """
    mla = config.mla
    batch, length, _ = h_BTD.shape

    def heads(name: str, x: jax.Array) -> jax.Array:
        return linear(layer, pairs, name, x).reshape(batch, length, config.num_heads, -1)

    if mla.query_rank is None:
        q_BTHK = heads("q_proj", h_BTD)
    else:
        low = linear(layer, pairs, "q_a_proj", h_BTD)
        q_BTHK = heads("q_b_proj", rms_norm(low, layer["q_a_norm"]["scale"], _LATENT_EPS))
    both = linear(layer, pairs, "kv_a_proj", h_BTD)
    latent_BTL, turned_BTR = jnp.split(both, [mla.latent_dim], axis=-1)
    latent_BTL = rms_norm(latent_BTL, layer["kv_a_norm"]["scale"], _LATENT_EPS)
    k_BTHN, v_BTHV = jnp.split(heads("kv_b_proj", latent_BTL), [mla.nope_dim], axis=-1)

    def rotate(x_BTHR: jax.Array) -> jax.Array:
        if mla.interleaved:
            x_BTHR = jnp.concatenate([x_BTHR[..., 0::2], x_BTHR[..., 1::2]], axis=-1)
        return apply_rope(x_BTHR, *tables)

    q_BTHN, q_BTHR = jnp.split(q_BTHK, [mla.nope_dim], axis=-1)
    k_BTHR = jnp.broadcast_to(
        rotate(turned_BTR[:, :, None]), (batch, length, config.num_heads, mla.rope_dim)
    )
    q_BTHK = jnp.concatenate([q_BTHN, rotate(q_BTHR)], axis=-1)
    k_BTHK = jnp.concatenate([k_BTHN, k_BTHR], axis=-1)
    if isinstance(config.rope_scaling, YarnScaling):
        q_BTHK = (q_BTHK * config.rope_scaling.logit_scale).astype(q_BTHK.dtype)
    # Kernels want keys and values of one width; the zeros are cut off again.
    missing = mla.key_dim - mla.value_dim
    v_BTHK = jnp.pad(v_BTHV, ((0, 0), (0, 0), (0, 0), (0, missing)))
    out_BTHK, state = attend(q_BTHK, k_BTHK, v_BTHK)
    return out_BTHK[..., : mla.value_dim], state
