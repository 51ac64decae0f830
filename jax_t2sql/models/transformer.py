"""The decoder as pure functions over a parameter tree, for training and scoring.

`hidden_fn` and `unembed_fn` have the signatures that `jax_t2sql.learner.make_learner` takes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jax_t2sql.learner.arrays import ShardingRules
from jax_t2sql.learner.batch import SharedPrefix
from jax_t2sql.learner.lora import lora_linear
from jax_t2sql.models.attention import Implementation, row_attention, row_layout
from jax_t2sql.models.attention_kinds import Attend, Tables, self_attention
from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.experts import ExpertMesh, expert_mesh
from jax_t2sql.models.feed_forward import mixture, swiglu
from jax_t2sql.models.fsdp import gathered, own_rows
from jax_t2sql.models.modules import rms_norm
from jax_t2sql.models.params import describe_params
from jax_t2sql.models.remat import Remat, rematerialised
from jax_t2sql.models.rope import rope_tables
from jax_t2sql.models.shapes import LayerGroup


class Execution(NamedTuple):
    """How a forward pass is run, apart from what it computes.

    Attributes:
      remat: what is kept for the backward pass, see `rematerialised`.
      attention: see `row_attention`.
      mesh: where what is computed; None leaves it to the compiler.
    """

    remat: Remat = "auto"
    attention: Implementation | None = None
    mesh: ExpertMesh | None = None


def hidden_fn(
    config: ModelConfig,
    *,
    remat: Remat = "auto",
    attention: Implementation | None = None,
    mesh: Mesh | None = None,
    rules: ShardingRules | None = None,
) -> Callable[..., jax.Array]:
    """Builds f(base, adapter, tokens_BT, positions_BT, segments_BT, replay_LBTE, prefix).

    The result is hidden_BTD after the final norm. Rows may hold several sequences: a token attends
    to earlier tokens of its own segment only; segment 0 is padding. `positions_BT` counts within
    each sequence. `adapter` mirrors the base tree with a `LoraPair` in place of each adapted module
    (adapter["layers"]["q_proj"]); modules may be missing, or the whole adapter None.

    `replay_LBTE`, None by default, are the experts that the sampler used, see `route`; L counts
    the layers that are mixtures of experts. `prefix`, None by default, is what the rows see besides
    themselves: a `SharedPrefix` whose state `prefix_fn` made.

    Args:
      remat: what is kept for the backward pass, see `rematerialised`.
      attention: see `row_attention`.
      mesh, rules: those of the learner. With them every device keeps its own rows, gathers the
        parameters of one layer at a time (see `fsdp`) and computes its own experts; without them
        the compiler divides the work as it sees fit.
    """
    how = Execution(remat, attention, expert_mesh(mesh, rules))

    def run(base, adapter, tokens_BT, positions_BT, segments_BT, replay_LBTE=None, *, prefix=None):
        return _forward(
            config, base, adapter, tokens_BT, positions_BT, segments_BT, replay_LBTE, prefix, how
        )[0]

    return run


def routing_fn(config: ModelConfig) -> Callable[..., jax.Array]:
    """Builds f with the arguments of `hidden_fn`'s -> the experts used, int32 [L, B, T, E]."""

    def run(base, adapter, tokens_BT, positions_BT, segments_BT, replay_LBTE=None):
        how = Execution(remat="none")
        return _forward(
            config, base, adapter, tokens_BT, positions_BT, segments_BT, replay_LBTE, None, how
        )[1]

    return run


def prefix_fn(
    config: ModelConfig,
    *,
    remat: Remat = "auto",
    attention: Implementation | None = None,
    mesh: Mesh | None = None,
    rules: ShardingRules | None = None,
) -> Callable[..., Any]:
    """Builds f(base, adapter, tokens_CP, positions_CP, segments_CP, replay_LBTE).

    The result is the state of a `SharedPrefix`: the keys and values of every layer. The last layer
    stops there, because nobody looks at what comes after. Arguments are those of `hidden_fn`.
    """
    how = Execution(remat, attention, expert_mesh(mesh, rules))

    def run(base, adapter, tokens_CP, positions_CP, segments_CP, replay_LBTE=None):
        tables, layout = rope_tables(config, positions_CP), row_layout(segments_CP)

        def attend(q_CPHK, k_CPGK, v_CPGK):
            out = row_attention(
                q_CPHK, k_CPGK, v_CPGK, layout, implementation=how.attention, mesh=how.mesh
            )
            return out, (k_CPGK, v_CPGK)

        descs = describe_params(config)
        x_CPD, state = embed(base, tokens_CP, descs, how.mesh), {}
        for group in config.layer_groups:

            def whole(x_CPD, modules, group=group):
                *modules, replay_CPE = modules
                x_CPD, keys_values, _ = decoder_layer(
                    config, group, *modules, x_CPD, tables, attend, replay_CPE, how.mesh
                )
                return own_rows(how.mesh, x_CPD), keys_values

            def keys_only(x_CPD, modules, whole=whole):
                return x_CPD, whole(x_CPD, modules)[1]

            def layer(x_CPD, modules, group=group, whole=whole, keys_only=keys_only):
                params, pairs, replay_CPE, is_last = modules
                params = gathered(how.mesh, descs[group.name], params)
                return jax.lax.cond(is_last, keys_only, whole, x_CPD, (params, pairs, replay_CPE))

            is_last_L = group.first + jnp.arange(group.count) == config.num_layers - 1
            replay = replay_LBTE if group.sparse else None
            stack = (*layer_stack(base, adapter, group), replay, is_last_L)
            body = rematerialised(layer, config, how.remat, tokens=tokens_CP.size)
            x_CPD, state[group.name] = jax.lax.scan(body, x_CPD, stack)
        return state

    return run


def _forward(
    config: ModelConfig,
    base: dict[str, Any],
    adapter: dict[str, Any] | None,
    tokens_BT: jax.Array,
    positions_BT: jax.Array,
    segments_BT: jax.Array,
    replay_LBTE: jax.Array | None,
    prefix: SharedPrefix | None,
    how: Execution,
) -> tuple[jax.Array, jax.Array | None]:
    tables = rope_tables(config, positions_BT)
    if prefix is None:
        layout = row_layout(segments_BT)
    else:
        layout = row_layout(segments_BT, prefix.prefixes_BT, prefix.segments_CP)
    descs = describe_params(config)
    x_BTD, experts_LBTE = embed(base, tokens_BT, descs, how.mesh), None
    for group in config.layer_groups:

        def layer(x_BTD, modules, group=group):
            params, pairs, replay_BTE, shared = modules
            params = gathered(how.mesh, descs[group.name], params)

            def attend(q_BTHK, k_BTGK, v_BTGK):
                out_BTHK = row_attention(
                    q_BTHK,
                    k_BTGK,
                    v_BTGK,
                    layout,
                    shared,
                    implementation=how.attention,
                    mesh=how.mesh,
                )
                return out_BTHK, None

            x_BTD, _, experts_BTE = decoder_layer(
                config, group, params, pairs, x_BTD, tables, attend, replay_BTE, how.mesh
            )
            return own_rows(how.mesh, x_BTD), experts_BTE

        replay = replay_LBTE if group.sparse else None
        shared = None if prefix is None else prefix.state[group.name]
        stack = (*layer_stack(base, adapter, group), replay, shared)
        body = rematerialised(layer, config, how.remat, tokens=tokens_BT.size)
        x_BTD, experts_LBTE = jax.lax.scan(body, x_BTD, stack)
    return rms_norm(x_BTD, base["final_norm"]["scale"], config.rms_norm_eps), experts_LBTE


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


def embed(
    base: dict[str, Any],
    tokens_BT: jax.Array,
    descs: dict[str, Any],
    mesh: ExpertMesh | None = None,
) -> jax.Array:
    """Token embeddings [B, T, D], split over the batch alone.

    Every device looks its own tokens up in a table that is whole along the axes of the batch. Found
    in a table whose width is split over them, they would have to be sent around afterwards.
    """
    table_VD = gathered(mesh, descs["embed"], base["embed"])["embedding"]
    return own_rows(mesh, jnp.take(table_VD, tokens_BT, axis=0, mode="clip"))


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
    replay_BTE: jax.Array | None = None,
    mesh: ExpertMesh | None = None,
) -> tuple[jax.Array, Any, jax.Array | None]:
    """One pre-norm block: attention, then a feed-forward part, each of the group's kind.

    Returns the block's output [B, T, D], the state that `attend` returned, and the experts that
    were used [B, T, E], None in a dense layer.
    """
    h_BTD = rms_norm(x_BTD, layer["input_norm"]["scale"], config.rms_norm_eps)
    out_BTD, state = self_attention(config, layer, pairs, h_BTD, tables, attend)
    x_BTD = x_BTD + out_BTD
    h_BTD = rms_norm(x_BTD, layer["post_norm"]["scale"], config.rms_norm_eps)
    if group.sparse:
        out_BTD, experts_BTE = mixture(config.moe, layer, pairs, h_BTD, replay_BTE, mesh)
    else:
        out_BTD, experts_BTE = swiglu(layer, pairs, h_BTD), None
    return x_BTD + out_BTD, state, experts_BTE
