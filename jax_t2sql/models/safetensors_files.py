"""Weights in Hugging Face's format: model.safetensors, whole or in shards with an index."""

import contextlib
import re
from pathlib import Path
from typing import Any

import numpy as np

from jax_t2sql.errors import UserError
from jax_t2sql.models.assemble import assemble
from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.files import read_json, write_tensors
from jax_t2sql.models.naming import FileTensor, file_tensors, hf_module
from jax_t2sql.models.params import Params

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a model directory.

    Raises:
      UserError: there are none, or a shard named by the index is missing.
    """
    index = directory / _INDEX
    if index.is_file():
        table = read_json(index).get("weight_map")
        if not isinstance(table, dict) or not table:
            raise UserError(f"{index} has no weight_map; download the model again")
        paths = [directory / Path(name).name for name in sorted(set(table.values()))]
        if missing := [path.name for path in paths if not path.is_file()]:
            raise UserError(
                f"{directory} lacks the shards {', '.join(missing)} that {_INDEX} names; "
                "finish the download"
            )
        return paths
    if (directory / _SINGLE).is_file():
        return [directory / _SINGLE]
    raise UserError(
        f"{directory} holds neither {_SINGLE} nor {_INDEX}; weights in other formats must be "
        "converted with transformers (save_pretrained writes safetensors)"
    )


def load_safetensors(directory: Path, config: ModelConfig, *, dtype: Any) -> Params:
    """The parameters in `directory`, cast to `dtype` tensor by tensor.

    Raises:
      UserError: a file is corrupt, or its tensors do not fit the configuration.
    """
    from safetensors import SafetensorError, safe_open

    with contextlib.ExitStack() as stack:
        holders = {}
        for path in weight_files(directory):
            try:
                handle = stack.enter_context(safe_open(path, framework="numpy"))
            except (SafetensorError, OSError) as error:
                raise UserError(f"{path} is corrupt or cut off ({error}); get it again") from error
            holders.update(dict.fromkeys(handle.keys(), handle))

        def read(tensor: FileTensor) -> np.ndarray:
            handle = holders[tensor.name]
            shape = handle.get_slice(tensor.name).get_shape()
            # Checked by the caller too, but reading a wrong tensor of a large model is slow.
            if tuple(shape) != tensor.shape:
                return np.empty(shape, np.uint8)
            return handle.get_tensor(tensor.name)

        def ignored(name: str) -> bool:
            # Older checkpoints store RoPE's frequencies, tied ones the table a second time, some
            # have further layers that guess several tokens ahead.
            tied = config.tie_embeddings and name == "lm_head.weight"
            layer = re.match(r"model\.layers\.(\d+)\.", name)
            ahead = config.moe is not None and layer and int(layer[1]) >= config.num_layers
            return tied or bool(ahead) or name.endswith("rotary_emb.inv_freq")

        return assemble(
            config,
            name=hf_module,
            available=holders,
            ignored=ignored,
            read=read,
            dtype=dtype,
            source=str(directory),
        )


def save_safetensors(directory: Path, config: ModelConfig, params: Params) -> None:
    """Writes model.safetensors with Hugging Face's tensor names, in the dtype of `params`."""
    tensors = {}
    for keys, parts in file_tensors(config, hf_module).items():
        leaf = params
        for key in keys:
            leaf = leaf[key]
        for tensor in parts:
            ours = np.asarray(leaf[tensor.index])
            tensors[tensor.name] = np.ascontiguousarray(tensor.to_file(ours))
    write_tensors(directory / _SINGLE, tensors)
