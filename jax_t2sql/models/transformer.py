"""The decoder as pure functions over a parameter tree, for training and scoring.

`hidden_fn` and `unembed_fn` have the signatures that `jax_t2sql.learner.make_learner` takes.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jax_t2sql.learner.lora import lora_linear
from jax_t2sql.models.attention import causal_attention
from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.rope import apply_rope, rope_tables

# (q_BTHK, k_BTGK, v_BTGK) -> (out_BTHK, state): what differs between training and decoding. The
# state is whatever the caller wants back from the layer: the cache, or nothing.
Attend = Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, Any]]


def hidden_fn(config: ModelConfig, *, remat: bool = True) -> Callable[..., jax.Array]:
    """Builds f(base, adapter, tokens_BT, positions_BT, segments_BT) -> hidden_BTD.

    Rows may hold several sequences: a token attends to earlier tokens of its own segment only;
    segment 0 is padding. `positions_BT` counts within each sequence. The result is after the final
    norm. `adapter` mirrors the base tree with a `LoraPair` in place of each adapted module
    (adapter["layers"]["q_proj"]); modules may be missing, or the whole adapter None.

    Args:
      remat: keep one activation a layer for the backward pass and recompute the rest.
    """

    def run(base, adapter, tokens_BT, positions_BT, segments_BT):
        cos_BTF, sin_BTF = rope_tables(config, positions_BT)

        def layer(x_BTD, modules):
            def attend(q_BTHK, k_BTGK, v_BTGK):
                return causal_attention(q_BTHK, k_BTGK, v_BTGK, segments_BT), None

            return decoder_layer(config, *modules, x_BTD, cos_BTF, sin_BTF, attend)

        body = jax.checkpoint(layer) if remat else layer
        x_BTD = embed(base, tokens_BT)
        x_BTD, _ = jax.lax.scan(body, x_BTD, (base["layers"], adapter_layers(adapter)))
        return rms_norm(x_BTD, base["final_norm"]["scale"], config.rms_norm_eps)

    return run


def unembed_fn(config: ModelConfig) -> Callable[..., jax.Array]:
    """Builds f(base, adapter, hidden_ND) -> float32 logits_NV (any leading dimensions)."""

    def run(base, adapter, hidden_ND):
        pair = (adapter or {}).get("lm_head")
        if config.tie_embeddings:
            table_VD = base["embed"]["embedding"]
            return jnp.einsum(
                "...d,vd->...v", hidden_ND, table_VD, preferred_element_type=jnp.float32
            )
        if pair is not None:
            return lora_linear(hidden_ND, base["lm_head"]["kernel"], pair).astype(jnp.float32)
        return jnp.matmul(hidden_ND, base["lm_head"]["kernel"], preferred_element_type=jnp.float32)

    return run


def embed(base: dict[str, Any], tokens_BT: jax.Array) -> jax.Array:
    """Token embeddings [B, T, D]."""
    return jnp.take(base["embed"]["embedding"], tokens_BT, axis=0, mode="clip")


def adapter_layers(adapter: dict[str, Any] | None) -> dict[str, Any]:
    """The per-layer part of an adapter, empty where there is none."""
    return (adapter or {}).get("layers", {})


def decoder_layer(
    config: ModelConfig,
    layer: dict[str, Any],
    pairs: dict[str, Any],
    x_BTD: jax.Array,
    cos_BTF: jax.Array,
    sin_BTF: jax.Array,
    attend: Attend,
) -> tuple[jax.Array, Any]:
    """One pre-norm block: attention, then a SwiGLU feed-forward (arXiv:2002.05202).

    Returns the block's output [B, T, D] and the state that `attend` returned.
    """
    batch, length, _ = x_BTD.shape

    def linear(name: str, x: jax.Array) -> jax.Array:
        module = layer[name]
        y = lora_linear(x, module["kernel"], pairs.get(name))
        return (y + module["bias"] if "bias" in module else y).astype(x.dtype)

    def heads(name: str, x: jax.Array, count: int) -> jax.Array:
        return linear(name, x).reshape(batch, length, count, config.head_dim)

    h_BTD = rms_norm(x_BTD, layer["input_norm"]["scale"], config.rms_norm_eps)
    q_BTHK = heads("q_proj", h_BTD, config.num_heads)
    k_BTGK = heads("k_proj", h_BTD, config.num_kv_heads)
    v_BTGK = heads("v_proj", h_BTD, config.num_kv_heads)
    if config.qk_norm:
        q_BTHK = rms_norm(q_BTHK, layer["q_norm"]["scale"], config.rms_norm_eps)
        k_BTGK = rms_norm(k_BTGK, layer["k_norm"]["scale"], config.rms_norm_eps)
    q_BTHK = apply_rope(q_BTHK, cos_BTF, sin_BTF)
    k_BTGK = apply_rope(k_BTGK, cos_BTF, sin_BTF)
    out_BTHK, state = attend(q_BTHK, k_BTGK, v_BTGK)
    x_BTD = x_BTD + linear("o_proj", out_BTHK.reshape(batch, length, -1))

    h_BTD = rms_norm(x_BTD, layer["post_norm"]["scale"], config.rms_norm_eps)
    gated_BTF = jax.nn.silu(linear("gate_proj", h_BTD)) * linear("up_proj", h_BTD)
    return x_BTD + linear("down_proj", gated_BTF), state


def rms_norm(x: jax.Array, scale: jax.Array, eps: float) -> jax.Array:
    """x / rms(x) · scale over the last axis, computed in float32 (arXiv:1910.07467)."""
    wide = x.astype(jnp.float32)
    inverse = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + eps)
    return (wide * inverse).astype(x.dtype) * scale
