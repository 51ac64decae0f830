"""Weights in Hugging Face's format: model.safetensors, whole or in shards with an index."""

import contextlib
import re
from pathlib import Path

import numpy as np

from jax_t2sql.errors import UserError
from jax_t2sql.models.assemble import Layout, Source, assemble
from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.files import read_json, write_tensors
from jax_t2sql.models.naming import file_tensors, hf_module
from jax_t2sql.models.params import Params
from jax_t2sql.models.safetensors_reader import TensorFile

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


def load_safetensors(directory: Path, config: ModelConfig, layout: Layout) -> Params:
    """The parameters in `directory`, each device's part alone, cast tensor by tensor.

    Raises:
      UserError: a file is corrupt, or its tensors do not fit the configuration.
    """
    with contextlib.ExitStack() as stack:
        holders: dict[str, TensorFile] = {}
        for path in weight_files(directory):
            file = stack.enter_context(contextlib.closing(TensorFile(path)))
            holders.update(dict.fromkeys(file.names(), file))

        def ignored(name: str) -> bool:
            # Older checkpoints store RoPE's frequencies, tied ones the table a second time, some
            # have further layers that guess several tokens ahead.
            tied = config.tie_embeddings and name == "lm_head.weight"
            layer = re.match(r"model\.layers\.(\d+)\.", name)
            ahead = config.moe is not None and layer and int(layer[1]) >= config.num_layers
            return tied or bool(ahead) or name.endswith("rotary_emb.inv_freq")

        source = Source(
            text=str(directory),
            names=holders,
            ignored=ignored,
            shape=lambda tensor: holders[tensor.name].shape(tensor.name),
            read=lambda tensor, box: holders[tensor.name].read(tensor.name, box),
        )
        return assemble(config, hf_module, source, layout)


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
