"""How many bytes training takes on each device of a mesh, by the shapes alone."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, PartitionSpec

from jax_t2sql.learner.arrays import ArrayDesc, ShardingRules
from jax_t2sql.learner.trainables import LoraSpec
from jax_t2sql.models.attention import _SCORE_BUDGET
from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.params import describe_params
from jax_t2sql.models.quantized import Quantization

# Float32 trainables: the gradient that micro-batches add up in, and the one of the running batch.
_GRADIENTS = 2
# First and second moment of AdamW.
_MOMENTS = 2
# Logits, their softmax and their gradient.
_LOGIT_ARRAYS = 3
# Scores, weights and their gradients.
_SCORE_ARRAYS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes on one device. All but the activations are exact.

    Attributes:
      weights: of the frozen base.
      adapter, gradients, optimizer: of what is trained, in float32.
      kept: one hidden state a token and layer, for the backward pass.
      layer: what the backward pass of one layer recomputes.
      gathered: one layer's weights whole along the fsdp axis, and the next one's on their way.
      logits: a chunk of them.
    """

    weights: int
    adapter: int
    gradients: int
    optimizer: int
    kept: int
    layer: int
    gathered: int
    logits: int

    @property
    def activations(self) -> int:
        return self.kept + self.layer + self.gathered + self.logits

    @property
    def total(self) -> int:
        state = self.weights + self.adapter + self.gradients + self.optimizer
        return state + self.activations


def plan_memory(
    config: ModelConfig,
    mesh: Mapping[str, int],
    *,
    adapter: LoraSpec,
    rows: int,
    length: int,
    dtype: Any = jnp.bfloat16,
    quantization: Quantization | None = None,
    rules: ShardingRules | None = None,
    max_logits: int = 1 << 22,
) -> Memory:
    """Bytes that one update takes on every device.

    Args:
      mesh: size of every mesh axis.
      rows, length: of a micro-batch, over all devices, in sequences and tokens.
      dtype: of the base and the activations.
      max_logits: as `make_learner` takes it.

    Raises:
      ValueError: the mesh cannot divide an array or the rows evenly; or the adapter's targets.
      UserError: the quantisation does not fit the model.
    """
    rules = rules or ShardingRules()
    abstract = AbstractMesh(tuple(mesh.values()), tuple(mesh))
    base = describe_params(config, dtype, quantization)
    adapted = _device_bytes(adapter.describe(base), abstract, rules)

    def split(axis: str) -> int:
        desc = ArrayDesc((1 << 60,), jnp.int8, (axis,), jax.nn.initializers.zeros)
        return (1 << 60) // rules.sharding(desc, abstract).shard_shape(desc.shape)[0]

    if rows % split("batch"):
        raise ValueError(
            f"{rows} rows cannot be split over the {split('batch')} shards of a batch: use a "
            f"multiple of {split('batch')}"
        )
    own_rows, size = rows // split("batch"), jnp.dtype(dtype).itemsize
    tokens = own_rows * length
    positions = max(max_logits // config.vocab_size, 128)
    scores = min(_SCORE_BUDGET, own_rows * config.num_heads * length * length)
    layer = tokens * size * _layer_width(config, heads=split("heads"), inner=split("mlp"))
    return Memory(
        weights=_device_bytes(base, abstract, rules),
        adapter=adapted,
        gradients=_GRADIENTS * adapted,
        optimizer=_MOMENTS * adapted,
        kept=config.num_layers * tokens * config.hidden_size * size,
        layer=layer + _SCORE_ARRAYS * scores * 4 // split("heads"),
        gathered=2 * _largest_layer(config, dtype, abstract, rules),
        logits=_LOGIT_ARRAYS * positions * config.vocab_size * 4 // split("vocab"),
    )


def active_params(config: ModelConfig) -> int:
    """How many parameters one token is multiplied with: all but the experts it does not use."""
    total = 0
    for path, desc in jax.tree_util.tree_leaves_with_path(describe_params(config)):
        count = math.prod(desc.shape)
        if "expert" in desc.axes:
            count = count * config.moe.experts_per_token // config.moe.num_experts
        total += 0 if path[0].key == "embed" and not config.tie_embeddings else count
    return total


def _device_bytes(descs: Any, mesh: AbstractMesh, rules: ShardingRules) -> int:
    def size(desc: ArrayDesc) -> int:
        shape = rules.sharding(desc, mesh).shard_shape(desc.shape)
        bits = 4 if jnp.dtype(desc.dtype) == jnp.int4 else 8 * jnp.dtype(desc.dtype).itemsize
        return math.prod(shape) * bits // 8

    return sum(size(desc) for desc in jax.tree.leaves(descs))


def _largest_layer(
    config: ModelConfig, dtype: Any, mesh: AbstractMesh, rules: ShardingRules
) -> int:
    """Bytes of a layer where the axis that spreads weights for storage alone is gathered."""
    if rules.spec(("embed",)) == PartitionSpec(None):
        return 0
    whole = dataclasses.replace(rules, embed=None)
    descs = describe_params(config, dtype)
    groups = config.layer_groups
    return max(_device_bytes(descs[g.name], mesh, whole) // g.count for g in groups)


def _layer_width(config: ModelConfig, *, heads: int, inner: int) -> int:
    """Numbers a token that the backward pass of one layer holds, on a device."""
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    # Each of q, k, v and the output, and its gradient; the normed input and the residual.
    attention = 2 * (2 * queries + 2 * keys) // heads + 4 * config.hidden_size
    feed_forward = [2 * 3 * config.intermediate_size // inner + 2 * config.hidden_size]
    if config.moe is not None:
        # Every choice has a row of its own: its input, gate, up, product and output.
        choice = 2 * config.hidden_size + 3 * config.moe.expert_size // inner
        shared = 3 * config.moe.shared_size // inner
        feed_forward.append(2 * (config.moe.experts_per_token * choice + shared))
    return attention + max(feed_forward)
