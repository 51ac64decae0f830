"""A base and an adapter merged into one model in Hugging Face's format, a tensor at a time."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jax_t2sql.learner.lora import LoraPair, lora_pairs
from jax_t2sql.models.checkpoints import INDEX, Checkpoint
from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.files import read_json
from jax_t2sql.models.naming import file_tensors, hf_module
from jax_t2sql.models.safetensors_files import SHARD_BYTES, write_shards

# Files of a model directory that a merge leaves as they are: tokenizer, chat template, licence.
_COPIED = ("*.json", "*.jinja", "*.model", "*.txt", "LICENSE*")


def merge_directory(
    directory: Path,
    out: Path,
    adapter: dict[str, Any] | None,
    *,
    dtype: Any = None,
    shard_bytes: int = SHARD_BYTES,
) -> int:
    """Writes the model in `directory` with W + scale · a @ b for every adapted kernel to `out`.

    One tensor of the base is in memory at a time, and one shard of the result. Tensors that no
    adapter touches keep their bits, except that quantised ones become bfloat16.

    Args:
      adapter: tree of `LoraPair`, as `load_adapter` gives it; None merges nothing.
      dtype: of the result; None keeps each tensor's own.
      shard_bytes: size of one file of weights, about.

    Returns: how many tensors the adapter changed.

    Raises:
      UserError: the directory holds no supported model, or its files are corrupt.
    """
    values = read_json(directory / "config.json")
    pairs = _pairs_by_name(ModelConfig.from_hf(values), adapter)
    with Checkpoint.open(directory, values) as checkpoint:

        def tensors() -> Iterator[tuple[str, np.ndarray]]:
            for name in checkpoint.names():
                base = checkpoint.read(name)
                kept = dtype or (jnp.bfloat16 if checkpoint.is_quantized(name) else base.dtype)
                if name in pairs:
                    base = base.astype(np.float32) + _update(*pairs[name])
                floating = jnp.issubdtype(base.dtype, jnp.floating)
                yield name, base.astype(kept) if floating else base

        write_shards(out, tensors(), shard_bytes=shard_bytes)
    for path in sorted({path for pattern in _COPIED for path in directory.glob(pattern)}):
        if path.is_file() and path.name not in (INDEX, "config.json"):
            shutil.copyfile(path, out / path.name)
    values.pop("quantization_config", None)
    if dtype is not None:
        values["torch_dtype"] = jnp.dtype(dtype).name
        values.pop("dtype", None)
    (out / "config.json").write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    return len(pairs)


def _update(pair: LoraPair, index: tuple[int, ...]) -> np.ndarray:
    """The update of one weight, [out, in] as in the file."""
    a_IR, b_RO = np.asarray(pair.a)[index], np.asarray(pair.b)[index]
    return pair.scale * (a_IR @ b_RO).T


def _pairs_by_name(
    config: ModelConfig, adapter: dict[str, Any] | None
) -> dict[str, tuple[LoraPair, tuple[int, ...]]]:
    tensors = file_tensors(config, hf_module)
    return {
        tensor.name: (pair, tensor.index)
        for keys, pair in lora_pairs(adapter or {})
        for tensor in tensors[(*keys, "kernel")]
    }
