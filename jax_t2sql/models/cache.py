"""Key/value cache and the one function that prefills, continues and decodes."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jax_t2sql.models.attention import cached_attention
from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.rope import rope_tables
from jax_t2sql.models.transformer import adapter_layers, decoder_layer, embed, rms_norm


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class KVCache:
    """Rotated keys and values of all layers, each [L, B, S, kv_heads, head_dim]."""

    k_LBSHK: jax.Array
    v_LBSHK: jax.Array


def init_cache(config: ModelConfig, batch: int, slots: int, dtype: Any = jnp.float32) -> KVCache:
    """An empty cache with room for `slots` tokens a row."""
    shape = (config.num_layers, batch, slots, config.num_kv_heads, config.head_dim)
    return KVCache(k_LBSHK=jnp.zeros(shape, dtype), v_LBSHK=jnp.zeros(shape, dtype))


def extend_fn(config: ModelConfig) -> Callable[..., tuple[jax.Array, KVCache]]:
    """Builds f(base, adapter, tokens_BT, positions_BT, valid_BS, cache, slot).

    The result is (hidden_BTD after the final norm, the cache with the new tokens in it).

    Reads T more tokens of every row: their keys and values go to slots [slot, slot + T), the same
    for all rows, and each query sees the valid slots up to its own. `valid_BS` says which slots
    hold real tokens, the new ones included; rows of different lengths are padded on the left or
    hold gaps, and `positions_BT` counts real tokens only. T = 1 is a decoding step. Outputs at
    invalid slots are meaningless.
    """

    def run(base, adapter, tokens_BT, positions_BT, valid_BS, cache, slot):
        cos_BTF, sin_BTF = rope_tables(config, positions_BT)

        # The whole cache travels in the carry and is written in place: as an output of the scan
        # every layer's part would be copied at every step.
        def layer(carry, modules):
            x_BTD, k_LBSHK, v_LBSHK = carry
            index, *parameters = modules

            def attend(q_BTHK, k_BTGK, v_BTGK):
                start = (index, 0, slot, 0, 0)
                keys_LBSHK = jax.lax.dynamic_update_slice(
                    k_LBSHK, k_BTGK[None].astype(k_LBSHK.dtype), start
                )
                values_LBSHK = jax.lax.dynamic_update_slice(
                    v_LBSHK, v_BTGK[None].astype(v_LBSHK.dtype), start
                )
                out_BTHK = cached_attention(
                    q_BTHK, keys_LBSHK[index], values_LBSHK[index], valid_BS, slot
                )
                return out_BTHK, (keys_LBSHK, values_LBSHK)

            x_BTD, written = decoder_layer(config, *parameters, x_BTD, cos_BTF, sin_BTF, attend)
            return (x_BTD, *written), None

        carry = (embed(base, tokens_BT), cache.k_LBSHK, cache.v_LBSHK)
        stack = (jnp.arange(config.num_layers), base["layers"], adapter_layers(adapter))
        (x_BTD, *arrays), _ = jax.lax.scan(layer, carry, stack)
        hidden_BTD = rms_norm(x_BTD, base["final_norm"]["scale"], config.rms_norm_eps)
        return hidden_BTD, KVCache(*arrays)

    return run
