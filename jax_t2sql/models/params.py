"""The parameter tree of a model: every array described once, everything else derived from it."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.nn.initializers import normal, ones, zeros

from jax_t2sql.learner.arrays import ArrayDesc, init_arrays
from jax_t2sql.models.config import ModelConfig

Params = dict[str, Any]


def describe_params(config: ModelConfig, dtype: Any = jnp.float32) -> Params:
    """The parameter tree with an `ArrayDesc` at every leaf.

    Kernels are [in, out]; everything under "layers" has the layer axis first, so that one scan
    runs through the stack. Abstract arrays, shardings and initial values derive from this tree.
    """
    layers, hidden, inner = config.num_layers, config.hidden_size, config.intermediate_size
    queries = config.num_heads * config.head_dim
    keys = config.num_kv_heads * config.head_dim

    def linear(inputs: int, outputs: int, axes: tuple[str, str], *, bias=False, gain=1.0) -> Params:
        # Unit-variance outputs for unit-variance inputs, whatever the width.
        init = normal(gain / math.sqrt(inputs))
        module = {"kernel": ArrayDesc((layers, inputs, outputs), dtype, ("layers", *axes), init)}
        if bias:
            module["bias"] = ArrayDesc((layers, outputs), dtype, ("layers", axes[1]), zeros)
        return module

    def norm(size: int, axis: str | None) -> Params:
        return {"scale": ArrayDesc((layers, size), dtype, ("layers", axis), ones)}

    # Two additions to the residual stream a layer: keep its variance independent of depth.
    residual_gain = 1 / math.sqrt(2 * layers)
    bias = config.qkv_bias
    stack = {
        "input_norm": norm(hidden, "embed"),
        "q_proj": linear(hidden, queries, ("embed", "heads"), bias=bias),
        "k_proj": linear(hidden, keys, ("embed", "kv_heads"), bias=bias),
        "v_proj": linear(hidden, keys, ("embed", "kv_heads"), bias=bias),
        "o_proj": linear(queries, hidden, ("heads", "embed"), gain=residual_gain),
        "post_norm": norm(hidden, "embed"),
        "gate_proj": linear(hidden, inner, ("embed", "mlp")),
        "up_proj": linear(hidden, inner, ("embed", "mlp")),
        "down_proj": linear(inner, hidden, ("mlp", "embed"), gain=residual_gain),
    }
    if config.qk_norm:
        stack["q_norm"] = norm(config.head_dim, None)
        stack["k_norm"] = norm(config.head_dim, None)
    table_VD = ArrayDesc((config.vocab_size, hidden), dtype, ("vocab", "embed"), normal(0.02))
    params = {
        "embed": {"embedding": table_VD},
        "layers": stack,
        "final_norm": {"scale": ArrayDesc((hidden,), dtype, ("embed",), ones)},
    }
    if not config.tie_embeddings:
        head_DV = ArrayDesc((hidden, config.vocab_size), dtype, ("embed", "vocab"), normal(0.02))
        params["lm_head"] = {"kernel": head_DV}
    return params


def init_params(config: ModelConfig, key: jax.Array, dtype: Any = jnp.float32) -> Params:
    """Random parameters: normal kernels, ones for norms, zero biases."""
    return init_arrays(describe_params(config, dtype), key)
