"""Names of the same tensors in Hugging Face checkpoints and GGUF files, and how to collect them."""

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_t2sql.errors import UserError
from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.params import Params, describe_params

# Module of our tree -> (Hugging Face, GGUF). {i} is the layer.
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


def hf_module(module: str, layer: int | None) -> str:
    """The Hugging Face name of a module, e.g. model.layers.3.self_attn.q_proj."""
    return _MODULES[module][0].format(i=layer)


def gguf_module(module: str, layer: int | None) -> str:
    """The GGUF name of a module, e.g. blk.3.attn_q."""
    return _MODULES[module][1].format(i=layer)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileTensor:
    """One tensor of a file, as a part of our tree.

    `shape` is the file's: kernels are stored [out, in] there and transposed on reading.
    """

    name: str
    module: str
    leaf: str
    layer: int | None
    shape: tuple[int, ...]

    def to_file(self, ours: np.ndarray) -> np.ndarray:
        """From our orientation to the file's, or back."""
        return ours.T if self.leaf == "kernel" else ours


def file_tensors(
    config: ModelConfig, name: Callable[[str, int | None], str]
) -> dict[tuple[str, ...], list[FileTensor]]:
    """For every leaf of our tree the tensors of a file that make it up, layer by layer.

    Args:
      name: `hf_module` or `gguf_module`.
    """
    result = {}
    for path, desc in jax.tree_util.tree_leaves_with_path(describe_params(config)):
        keys = tuple(entry.key for entry in path)
        module, leaf = keys[-2:]
        stacked = keys[0] == "layers"
        shape = desc.shape[1:] if stacked else desc.shape
        result[keys] = [
            FileTensor(
                name=f"{name(module, layer)}.{'bias' if leaf == 'bias' else 'weight'}",
                module=module,
                leaf=leaf,
                layer=layer,
                shape=shape[::-1] if leaf == "kernel" else shape,
            )
            for layer in (range(config.num_layers) if stacked else (None,))
        ]
    return result


def assemble(
    config: ModelConfig,
    *,
    name: Callable[[str, int | None], str],
    available: Collection[str],
    ignored: Callable[[str], bool],
    read: Callable[[FileTensor], np.ndarray],
    dtype: Any,
    source: str,
) -> Params:
    """Builds the parameter tree tensor by tensor, so that little more than itself is in memory.

    Args:
      available: names of all tensors of the source.
      ignored: tensors that may be left over without changing the model.
      read: the values of one tensor, in the file's orientation.
      dtype: of the result.
      source: for messages.

    Raises:
      UserError: a tensor is missing, of the wrong shape, or not part of this architecture.
    """
    wanted = file_tensors(config, name)
    names = {tensor.name for tensors in wanted.values() for tensor in tensors}
    if missing := sorted(names - set(available)):
        raise UserError(
            f"{source} lacks {len(missing)} of {len(names)} tensors of this {config.architecture} "
            f"model, the first is {missing[0]!r}; is the download complete?"
        )
    if extra := sorted(x for x in available if x not in names and not ignored(x)):
        raise UserError(
            f"{source} holds tensors that a {config.architecture} model does not have, the first "
            f"of {len(extra)} is {extra[0]!r}; its configuration does not fit its weights"
        )
    params: Params = {}
    for keys, tensors in wanted.items():
        leaf = _read_leaf(tensors, read, dtype, source)
        node = params
        for key in keys[:-1]:
            node = node.setdefault(key, {})
        node[keys[-1]] = jnp.asarray(leaf)
    return params


def _read_leaf(
    tensors: list[FileTensor], read: Callable[[FileTensor], np.ndarray], dtype: Any, source: str
) -> np.ndarray:
    leaf = None
    for index, tensor in enumerate(tensors):
        values = read(tensor)
        if values.shape != tensor.shape:
            raise UserError(
                f"tensor {tensor.name!r} of {source} has shape {list(values.shape)}; "
                f"the model's configuration asks for {list(tensor.shape)}"
            )
        ours = tensor.to_file(values)
        if leaf is None:
            stack = () if tensor.layer is None else (len(tensors),)
            leaf = np.empty((*stack, *ours.shape), dtype)
        leaf[... if tensor.layer is None else index] = ours
    return leaf
