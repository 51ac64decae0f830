"""The parameter tree of a model: every array described once, everything else derived from it."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.nn.initializers import normal, ones, zeros

from jax_t2sql.learner.arrays import ArrayDesc, init_arrays
from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.quantized import Quantization
from jax_t2sql.models.shapes import LayerGroup

Params = dict[str, Any]


def describe_params(
    config: ModelConfig, dtype: Any = jnp.float32, quantization: Quantization | None = None
) -> Params:
    """The parameter tree with an `ArrayDesc` at every leaf, or two in a `QuantizedKernel`.

    Kernels are [in, out]. Every group of `config.layer_groups` is a subtree whose arrays have the
    layer axis first, so that one scan runs through it; those of experts have the expert axis next.
    Abstract arrays, shardings and initial values derive from this tree; a quantised model's values
    come from `load_model` or `quantize_params`.
    """
    hidden = config.hidden_size
    table_VD = ArrayDesc((config.vocab_size, hidden), dtype, ("vocab", "embed"), normal(0.02))
    params = {
        "embed": {"embedding": table_VD},
        **{group.name: _describe_group(config, group, dtype) for group in config.layer_groups},
        "final_norm": {"scale": ArrayDesc((hidden,), dtype, ("embed",), ones)},
    }
    if not config.tie_embeddings:
        head_DV = ArrayDesc((hidden, config.vocab_size), dtype, ("embed", "vocab"), normal(0.02))
        params["lm_head"] = {"kernel": head_DV}
    if quantization is None:
        return params

    def quantised(path, desc):
        keys = tuple(entry.key for entry in path)
        name = "/".join(keys[:-1])
        return quantization.describe(name, desc) if quantization.covers(keys) else desc

    return jax.tree_util.tree_map_with_path(quantised, params)


def init_params(config: ModelConfig, key: jax.Array, dtype: Any = jnp.float32) -> Params:
    """Random parameters: normal kernels, ones for norms, zero biases."""
    return init_arrays(describe_params(config, dtype), key)


def count_params(config: ModelConfig) -> int:
    """Numbers in all arrays of the tree."""
    return sum(math.prod(desc.shape) for desc in jax.tree.leaves(describe_params(config)))


@dataclasses.dataclass(frozen=True)
class _Describe:
    """Modules of one group. Two additions a layer go to the residual stream: `residual` keeps its
    variance independent of the depth."""

    layers: int
    dtype: Any
    residual: float

    def linear(self, inputs: int, outputs: int, axes, *, bias=False, gain=1.0, experts=0) -> Params:
        # Unit-variance outputs for unit-variance inputs, whatever the width.
        init = normal(gain / math.sqrt(inputs))
        lead, names = (self.layers,), ("layers",)
        if experts:
            lead, names = (*lead, experts), (*names, "expert")
        module = {"kernel": ArrayDesc((*lead, inputs, outputs), self.dtype, (*names, *axes), init)}
        if bias:
            module["bias"] = ArrayDesc((*lead, outputs), self.dtype, (*names, axes[1]), zeros)
        return module

    def norm(self, size: int, axis: str | None) -> Params:
        return {"scale": ArrayDesc((self.layers, size), self.dtype, ("layers", axis), ones)}

    def swiglu(self, hidden: int, inner: int, prefix: str = "", experts: int = 0) -> Params:
        into, back = ("embed", "mlp"), ("mlp", "embed")
        down = self.linear(inner, hidden, back, gain=self.residual, experts=experts)
        return {
            f"{prefix}gate_proj": self.linear(hidden, inner, into, experts=experts),
            f"{prefix}up_proj": self.linear(hidden, inner, into, experts=experts),
            f"{prefix}down_proj": down,
        }


def _describe_group(config: ModelConfig, group: LayerGroup, dtype: Any) -> Params:
    make = _Describe(group.count, dtype, 1 / math.sqrt(2 * config.num_layers))
    hidden = config.hidden_size
    attention = _grouped_query if config.mla is None else _latent
    stack = {
        "input_norm": make.norm(hidden, "embed"),
        **attention(config, make),
        "post_norm": make.norm(hidden, "embed"),
    }
    if not group.sparse:
        return stack | make.swiglu(hidden, config.intermediate_size)
    moe = config.moe
    # The table holds a vector for each expert, which tokens are compared with. It is called an
    # embedding so that adapters leave it alone: routing stays that of the base.
    shape = (group.count, moe.num_experts, hidden)
    router = {"embedding": ArrayDesc(shape, dtype, ("layers", None, "embed"), normal(0.02))}
    if moe.scoring == "sigmoid":
        # Float32 in every checkpoint: it is a running correction, smaller than bfloat16 resolves.
        bias_LE = ArrayDesc(shape[:2], jnp.float32, ("layers", None), zeros)
        router["bias"] = bias_LE
    stack["router"] = router
    stack |= make.swiglu(hidden, moe.expert_size, "expert_", moe.num_experts)
    if moe.shared_size:
        stack |= make.swiglu(hidden, moe.shared_size, "shared_")
    return stack


def _grouped_query(config: ModelConfig, make: _Describe) -> Params:
    hidden, bias = config.hidden_size, config.qkv_bias
    queries = config.num_heads * config.head_dim
    keys = config.num_kv_heads * config.head_dim
    modules = {
        "q_proj": make.linear(hidden, queries, ("embed", "heads"), bias=bias),
        "k_proj": make.linear(hidden, keys, ("embed", "kv_heads"), bias=bias),
        "v_proj": make.linear(hidden, keys, ("embed", "kv_heads"), bias=bias),
        "o_proj": make.linear(queries, hidden, ("heads", "embed"), gain=make.residual),
    }
    if config.qk_norm:
        modules["q_norm"] = make.norm(config.head_dim, None)
        modules["k_norm"] = make.norm(config.head_dim, None)
    return modules


def _latent(config: ModelConfig, make: _Describe) -> Params:
    hidden, mla = config.hidden_size, config.mla
    queries = config.num_heads * mla.key_dim
    # Latents are split like hidden states where a kernel reads them, and whole where one writes.
    modules = {
        "kv_a_proj": make.linear(hidden, mla.latent_dim + mla.rope_dim, ("embed", None)),
        "kv_a_norm": make.norm(mla.latent_dim, None),
        "kv_b_proj": make.linear(
            mla.latent_dim, config.num_heads * (mla.nope_dim + mla.value_dim), ("embed", "heads")
        ),
        "o_proj": make.linear(
            config.num_heads * mla.value_dim, hidden, ("heads", "embed"), gain=make.residual
        ),
    }
    if mla.query_rank is None:
        modules["q_proj"] = make.linear(hidden, queries, ("embed", "heads"))
    else:
        modules["q_a_proj"] = make.linear(hidden, mla.query_rank, ("embed", None))
        modules["q_a_norm"] = make.norm(mla.query_rank, None)
        modules["q_b_proj"] = make.linear(mla.query_rank, queries, ("embed", "heads"))
    return modules
