"""The decoder as pure functions over a parameter tree, for training and scoring.

`hidden_fn` and `unembed_fn` have the signatures that `jax_t2sql.learner.make_learner` takes.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jax_t2sql.learner.arrays import ShardingRules
from jax_t2sql.learner.lora import lora_linear
from jax_t2sql.models.attention import causal_attention
from jax_t2sql.models.attention_kinds import Attend, Tables, self_attention
from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.experts import ExpertMesh
from jax_t2sql.models.feed_forward import mixture, swiglu
from jax_t2sql.models.modules import rms_norm
from jax_t2sql.models.rope import rope_tables
from jax_t2sql.models.shapes import LayerGroup


def hidden_fn(
    config: ModelConfig,
    *,
    remat: bool = True,
    mesh: Mesh | None = None,
    rules: ShardingRules | None = None,
) -> Callable[..., jax.Array]:
    """Builds f(base, adapter, tokens_BT, positions_BT, segments_BT, replay_LBTK) -> hidden_BTD.

    Rows may hold several sequences: a token attends to earlier tokens of its own segment only;
    segment 0 is padding. `positions_BT` counts within each sequence. The result is after the final
    norm. `adapter` mirrors the base tree with a `LoraPair` in place of each adapted module
    (adapter["layers"]["q_proj"]); modules may be missing, or the whole adapter None.

    `replay_LBTK`, None by default, are the experts that the sampler used, see `route`; L counts
    the layers that are mixtures of experts.

    Args:
      remat: keep one activation a layer for the backward pass and recompute the rest.
      mesh, rules: those of the learner. With them every device computes its own experts for its own
        rows; without them the compiler divides the work of experts as it sees fit.
    """
    experts = None if mesh is None else ExpertMesh(mesh, rules or ShardingRules())

    def run(base, adapter, tokens_BT, positions_BT, segments_BT, replay_LBTK=None):
        return _forward(
            config, base, adapter, tokens_BT, positions_BT, segments_BT, replay_LBTK, remat, experts
        )[0]

    return run


def routing_fn(config: ModelConfig) -> Callable[..., jax.Array]:
    """Builds f with the arguments of `hidden_fn`'s -> the experts used, int32 [L, B, T, K]."""

    def run(base, adapter, tokens_BT, positions_BT, segments_BT, replay_LBTK=None):
        return _forward(
            config, base, adapter, tokens_BT, positions_BT, segments_BT, replay_LBTK, False
        )[1]

    return run


def _forward(
    config, base, adapter, tokens_BT, positions_BT, segments_BT, replay_LBTK, remat, mesh=None
) -> tuple[jax.Array, jax.Array | None]:
    tables = rope_tables(config, positions_BT)

    def attend(q_BTHK, k_BTGK, v_BTGK):
        return causal_attention(q_BTHK, k_BTGK, v_BTGK, segments_BT), None

    x_BTD, experts_LBTK = embed(base, tokens_BT), None
    for group in config.layer_groups:

        def layer(x_BTD, modules, group=group):
            *modules, replay_BTK = modules
            x_BTD, _, experts_BTK = decoder_layer(
                config, group, *modules, x_BTD, tables, attend, replay_BTK, mesh
            )
            return x_BTD, experts_BTK

        stack = (*layer_stack(base, adapter, group), replay_LBTK if group.sparse else None)
        body = jax.checkpoint(layer) if remat else layer
        x_BTD, experts_LBTK = jax.lax.scan(body, x_BTD, stack)
    return rms_norm(x_BTD, base["final_norm"]["scale"], config.rms_norm_eps), experts_LBTK


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


def layer_stack(
    base: dict[str, Any], adapter: dict[str, Any] | None, group: LayerGroup
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters and low-rank pairs of a group of layers, the layer axis first; pairs may be {}."""
    return base[group.name], (adapter or {}).get(group.name, {})


def decoder_layer(
    config: ModelConfig,
    group: LayerGroup,
    layer: dict[str, Any],
    pairs: dict[str, Any],
    x_BTD: jax.Array,
    tables: Tables,
    attend: Attend,
    replay_BTK: jax.Array | None = None,
    mesh: ExpertMesh | None = None,
) -> tuple[jax.Array, Any, jax.Array | None]:
    """One pre-norm block: attention, then a feed-forward part, each of the group's kind.

    Returns the block's output [B, T, D], the state that `attend` returned, and the experts that
    were used [B, T, K], None in a dense layer.
    """
    h_BTD = rms_norm(x_BTD, layer["input_norm"]["scale"], config.rms_norm_eps)
    out_BTD, state = self_attention(config, layer, pairs, h_BTD, tables, attend)
    x_BTD = x_BTD + out_BTD
    h_BTD = rms_norm(x_BTD, layer["post_norm"]["scale"], config.rms_norm_eps)
    if group.sparse:
        out_BTD, experts_BTK = mixture(config.moe, layer, pairs, h_BTD, replay_BTK, mesh)
    else:
        out_BTD, experts_BTK = swiglu(layer, pairs, h_BTD), None
    return x_BTD + out_BTD, state, experts_BTK
