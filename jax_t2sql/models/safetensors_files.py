"""Weights in Hugging Face's format: read from and written to safetensors, whole or in shards."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from jax_t2sql.models.assemble import Layout, Source, assemble
from jax_t2sql.models.checkpoints import INDEX, SINGLE, Checkpoint
from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.files import read_json, write_tensors
from jax_t2sql.models.naming import file_tensors, hf_module
from jax_t2sql.models.params import Params

SHARD_BYTES = 5_000_000_000
"""Size of one file of weights, about; what the hub recommends."""


def load_safetensors(directory: Path, config: ModelConfig, layout: Layout) -> Params:
    """The parameters in `directory`, each device's part alone, cast tensor by tensor.

    Raises:
      UserError: a file is corrupt, or its tensors do not fit the configuration.
    """

    def ignored(name: str) -> bool:
        # Older checkpoints store RoPE's frequencies, tied ones the table a second time, some have
        # further layers that guess several tokens ahead.
        tied = config.tie_embeddings and name == "lm_head.weight"
        layer = re.match(r"model\.layers\.(\d+)\.", name)
        ahead = config.moe is not None and layer and int(layer[1]) >= config.num_layers
        return tied or bool(ahead) or name.endswith("rotary_emb.inv_freq")

    with Checkpoint.open(directory, read_json(directory / "config.json")) as checkpoint:
        source = Source(
            text=str(directory),
            names=checkpoint.names(),
            ignored=ignored,
            shape=lambda tensor: checkpoint.shape(tensor.name),
            read=lambda tensor, box: checkpoint.read(tensor.name, box),
            read_int4=lambda tensor, box, group: checkpoint.read_int4(tensor.name, box, group),
        )
        return assemble(config, hf_module, source, layout)


def save_safetensors(
    directory: Path, config: ModelConfig, params: Params, *, shard_bytes: int = SHARD_BYTES
) -> None:
    """Writes the weights with Hugging Face's tensor names, in the dtypes of `params`.

    Quantised kernels are multiplied out. The host holds one shard at a time.
    """

    def tensors() -> Iterator[tuple[str, np.ndarray]]:
        for keys, parts in file_tensors(config, hf_module).items():
            leaf = params
            for key in keys:
                leaf = leaf[key]
            for tensor in parts:
                yield tensor.name, tensor.to_file(np.asarray(leaf[tensor.index]))

    write_shards(directory, tensors(), shard_bytes=shard_bytes)


def write_shards(
    directory: Path, tensors: Iterable[tuple[str, np.ndarray]], *, shard_bytes: int
) -> None:
    """Writes tensors to model.safetensors, or to several files with an index if they are large.

    Raises:
      OSError: the disk is full or fails, with the system's code.
    """
    held: dict[str, np.ndarray] = {}
    shards: list[list[str]] = []
    total = size = 0

    def write() -> None:
        write_tensors(directory / _part(len(shards)), held)
        shards.append(list(held))
        held.clear()

    for name, values in tensors:
        if held and size + values.nbytes > shard_bytes:
            write()
            size = 0
        held[name] = np.ascontiguousarray(values)
        size += values.nbytes
        total += values.nbytes
    write()
    # The number of files, which is part of their names, is known only now.
    if len(shards) == 1:
        (directory / _part(0)).rename(directory / SINGLE)
        return
    table = {}
    for number, names in enumerate(shards):
        final = f"model-{number + 1:05}-of-{len(shards):05}.safetensors"
        (directory / _part(number)).rename(directory / final)
        table |= dict.fromkeys(names, final)
    index = {"metadata": {"total_size": total}, "weight_map": table}
    (directory / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _part(number: int) -> str:
    return f"model-{number + 1:05}.partial"
