"""Key/value cache and the one function that prefills, continues and decodes."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jax_t2sql.learner.arrays import ShardingRules
from jax_t2sql.models.cached_attention import cached_attention
from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.experts import expert_mesh
from jax_t2sql.models.fsdp import gathered, own_rows
from jax_t2sql.models.modules import rms_norm
from jax_t2sql.models.params import describe_params
from jax_t2sql.models.rope import rope_tables
from jax_t2sql.models.shapes import LayerGroup
from jax_t2sql.models.transformer import decoder_layer, embed, layer_stack

# Up to this depth every layer is compiled apart and has a cache of its own, which attention reads
# where it lies: decoding takes two thirds of the time. Deeper models are scanned, because
# compiling a copy of each layer takes minutes, and their attention copies a layer's cache.
_MAX_UNROLLED = 8


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class KVCache:
    """Rotated keys, and values, of all layers.

    Every array has rows at axis 1 and slots at axis 2, so that `jax.tree.map` can pick rows or add
    slots. Shallow models have an array [G, B, S, K] a layer; deep ones a single [L, B, S, G, K].
    """

    keys: tuple[jax.Array, ...]
    values: tuple[jax.Array, ...]


def init_cache(config: ModelConfig, batch: int, slots: int, dtype: Any = jnp.float32) -> KVCache:
    """An empty cache with room for `slots` tokens a row."""
    layers, groups, size = config.num_layers, config.num_kv_heads, config.head_dim
    if layers <= _MAX_UNROLLED:
        shape, count = (groups, batch, slots, size), layers
    else:
        shape, count = (layers, batch, slots, groups, size), 1

    def arrays():
        return tuple(jnp.zeros(shape, dtype) for _ in range(count))

    return KVCache(keys=arrays(), values=arrays())


def extend_fn(
    config: ModelConfig,
    *,
    record: bool = False,
    mesh: Mesh | None = None,
    rules: ShardingRules | None = None,
) -> Callable[..., tuple[Any, ...]]:
    """Builds f(base, adapter, tokens_BT, positions_BT, valid_BS, cache, slot).

    The result is (hidden_BTD after the final norm, the cache with the new tokens in it); with
    `record` also the experts that were used, int32 [L, B, T, E] for the L layers that have any.

    Reads T more tokens of every row: their keys and values go to slots [slot, slot + T), the same
    for all rows, and each query sees the valid slots up to its own. `valid_BS` says which slots
    hold real tokens, the new ones included; rows of different lengths are padded on the left or
    hold gaps, and `positions_BT` counts real tokens only. T = 1 is a decoding step. Outputs at
    invalid slots are meaningless.

    Args:
      record: only for mixtures of experts.
      mesh, rules: as `hidden_fn` takes them; B must be a multiple of the devices that share rows.
    """
    where = expert_mesh(mesh, rules)
    descs = describe_params(config)
    through_layers = _unrolled if config.num_layers <= _MAX_UNROLLED else _scanned

    def run(base, adapter, tokens_BT, positions_BT, valid_BS, cache, slot):
        tables = rope_tables(config, positions_BT)

        def layer(group, modules, x_BTD, write):
            """One layer; `write` stores new keys and values and gives the layer's whole cache."""

            def attend(q_BTHK, k_BTGK, v_BTGK):
                (k_GBSK, v_GBSK), state = write(k_BTGK, v_BTGK)
                return cached_attention(q_BTHK, k_GBSK, v_GBSK, valid_BS, slot), state

            params, pairs = modules
            params = gathered(where, descs[group.name], params)
            x_BTD, state, experts_BTE = decoder_layer(
                config, group, params, pairs, x_BTD, tables, attend, mesh=where
            )
            return own_rows(where, x_BTD), state, experts_BTE

        stacks = [(group, layer_stack(base, adapter, group)) for group in config.layer_groups]
        x_BTD = embed(base, tokens_BT, descs, where)
        x_BTD, cache, experts_LBTE = through_layers(layer, stacks, x_BTD, cache, slot)
        hidden_BTD = rms_norm(x_BTD, base["final_norm"]["scale"], config.rms_norm_eps)
        return (hidden_BTD, cache, experts_LBTE) if record else (hidden_BTD, cache)

    return run


Stacks = list[tuple[LayerGroup, Any]]


def _unrolled(layer: Callable, stacks: Stacks, x_BTD: jax.Array, cache: KVCache, slot: jax.Array):
    arrays, experts = [], []
    for group, stack in stacks:
        for index in range(group.count):
            old = cache.keys[group.first + index], cache.values[group.first + index]

            def write(*new_BTGK, old=old):
                start = (0, 0, slot, 0)
                written = tuple(
                    jax.lax.dynamic_update_slice(
                        whole, part.transpose(2, 0, 1, 3).astype(whole.dtype), start
                    )
                    for whole, part in zip(old, new_BTGK, strict=True)
                )
                return written, written

            modules = jax.tree.map(lambda x, index=index: x[index], stack)
            x_BTD, written, experts_BTE = layer(group, modules, x_BTD, write)
            arrays.append(written)
            experts += [experts_BTE] * group.sparse
    keys, values = zip(*arrays, strict=True)
    return x_BTD, KVCache(keys=keys, values=values), jnp.stack(experts) if experts else None


def _scanned(layer: Callable, stacks: Stacks, x_BTD: jax.Array, cache: KVCache, slot: jax.Array):
    # The whole cache travels in the carry and is written in place: as an output of the scan every
    # layer's part would be copied at every step.
    carry, experts_LBTE = (x_BTD, *cache.keys, *cache.values), None
    for group, stack in stacks:

        def body(carry, modules, group=group):
            x_BTD, *old_LBSGK = carry
            index, *modules = modules

            def write(*new_BTGK):
                written = tuple(
                    jax.lax.dynamic_update_slice(
                        whole, part[None].astype(whole.dtype), (index, 0, slot, 0, 0)
                    )
                    for whole, part in zip(old_LBSGK, new_BTGK, strict=True)
                )
                return tuple(whole[index].transpose(2, 0, 1, 3) for whole in written), written

            x_BTD, written, experts_BTE = layer(group, modules, x_BTD, write)
            return (x_BTD, *written), experts_BTE

        indices = group.first + jnp.arange(group.count)
        # The layers with experts are one group, the last.
        carry, experts_LBTE = jax.lax.scan(body, carry, (indices, *stack))
    x_BTD, keys, values = carry
    return x_BTD, KVCache(keys=(keys,), values=(values,)), experts_LBTE
