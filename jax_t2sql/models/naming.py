"""Names of the same tensors in Hugging Face checkpoints and GGUF files."""

import dataclasses
import itertools
from collections.abc import Callable

import jax
import numpy as np

from jax_t2sql.learner.arrays import ArrayDesc
from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.params import describe_params

# Module of our tree -> (Hugging Face, GGUF). {i} is the layer, {e} the expert.
_MODULES = {
    "embed": ("model.embed_tokens", "token_embd"),
    "final_norm": ("model.norm", "output_norm"),
    "lm_head": ("lm_head", "output"),
    "input_norm": ("model.layers.{i}.input_layernorm", "blk.{i}.attn_norm"),
    "post_norm": ("model.layers.{i}.post_attention_layernorm", "blk.{i}.ffn_norm"),
    "q_proj": ("model.layers.{i}.self_attn.q_proj", "blk.{i}.attn_q"),
    "k_proj": ("model.layers.{i}.self_attn.k_proj", "blk.{i}.attn_k"),
    "v_proj": ("model.layers.{i}.self_attn.v_proj", "blk.{i}.attn_v"),
    "o_proj": ("model.layers.{i}.self_attn.o_proj", "blk.{i}.attn_output"),
    "q_norm": ("model.layers.{i}.self_attn.q_norm", "blk.{i}.attn_q_norm"),
    "k_norm": ("model.layers.{i}.self_attn.k_norm", "blk.{i}.attn_k_norm"),
    "gate_proj": ("model.layers.{i}.mlp.gate_proj", "blk.{i}.ffn_gate"),
    "up_proj": ("model.layers.{i}.mlp.up_proj", "blk.{i}.ffn_up"),
    "down_proj": ("model.layers.{i}.mlp.down_proj", "blk.{i}.ffn_down"),
}
# Mixtures of experts and latent attention are read from Hugging Face's format alone.
_HF_MODULES = {
    "q_a_proj": "model.layers.{i}.self_attn.q_a_proj",
    "q_a_norm": "model.layers.{i}.self_attn.q_a_layernorm",
    "q_b_proj": "model.layers.{i}.self_attn.q_b_proj",
    "kv_a_proj": "model.layers.{i}.self_attn.kv_a_proj_with_mqa",
    "kv_a_norm": "model.layers.{i}.self_attn.kv_a_layernorm",
    "kv_b_proj": "model.layers.{i}.self_attn.kv_b_proj",
    "router": "model.layers.{i}.mlp.gate",
    "expert_gate_proj": "model.layers.{i}.mlp.experts.{e}.gate_proj",
    "expert_up_proj": "model.layers.{i}.mlp.experts.{e}.up_proj",
    "expert_down_proj": "model.layers.{i}.mlp.experts.{e}.down_proj",
    "shared_gate_proj": "model.layers.{i}.mlp.shared_experts.gate_proj",
    "shared_up_proj": "model.layers.{i}.mlp.shared_experts.up_proj",
    "shared_down_proj": "model.layers.{i}.mlp.shared_experts.down_proj",
}
Name = Callable[[str, int | None, int | None], str]
"""(module, layer, expert) -> the module's name in a file."""


def hf_module(module: str, layer: int | None, expert: int | None = None) -> str:
    """The Hugging Face name of a module, e.g. model.layers.3.self_attn.q_proj."""
    name = _MODULES[module][0] if module in _MODULES else _HF_MODULES[module]
    return name.format(i=layer, e=expert)


def gguf_module(module: str, layer: int | None, expert: int | None = None) -> str:
    """The GGUF name of a module, e.g. blk.3.attn_q."""
    return _MODULES[module][1].format(i=layer, e=expert)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileTensor:
    """One tensor of a file, as a part of a leaf of our tree.

    Attributes:
      index: where the part stands in the leaf: (), (layer,) or (layer, expert), layers counted
        within their group.
      shape: the file's: kernels are stored [out, in] there and transposed on reading.
    """

    name: str
    module: str
    leaf: str
    index: tuple[int, ...]
    shape: tuple[int, ...]

    def to_file(self, ours: np.ndarray) -> np.ndarray:
        """From our orientation to the file's, or back."""
        return ours.T if self.leaf == "kernel" else ours


def file_tensors(config: ModelConfig, name: Name) -> dict[tuple[str, ...], list[FileTensor]]:
    """For every leaf of our tree the tensors of a file that make it up, in order of their index.

    Args:
      name: `hf_module` or `gguf_module`.
    """
    first = {group.name: group.first for group in config.layer_groups}
    result = {}
    for path, desc in jax.tree_util.tree_leaves_with_path(describe_params(config)):
        keys = tuple(entry.key for entry in path)
        module, leaf = keys[-2:]
        lead = stacked_axes(desc)
        shape = desc.shape[lead:]
        result[keys] = [
            FileTensor(
                name=_tensor_name(name, module, leaf, index, first.get(keys[0])),
                module=module,
                leaf=leaf,
                index=index,
                shape=shape[::-1] if leaf == "kernel" else shape,
            )
            for index in itertools.product(*map(range, desc.shape[:lead]))
        ]
    return result


def stacked_axes(desc: ArrayDesc) -> int:
    """How many leading axes of an array count layers and experts."""
    return sum(axis in ("layers", "expert") for axis in desc.axes)


def _tensor_name(
    name: Name, module: str, leaf: str, index: tuple[int, ...], first: int | None
) -> str:
    layer = first + index[0] if index else None
    stem = name(module, layer, index[1] if len(index) > 1 else None)
    if leaf != "bias":
        return f"{stem}.weight"
    return f"{stem}.{'e_score_correction_bias' if module == 'router' else 'bias'}"
