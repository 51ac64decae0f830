"""A model directory's tensors by name, whatever file they lie in and however they are stored.

Besides plain numbers two forms of quantised checkpoints are read: 8-bit floats with a scale for
each block (DeepSeek-V3, Kimi-K2), and packed 4-bit integers with a scale for each group of a row
(Kimi-K2-Thinking and later; the pack-quantized format of compressed-tensors).
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jax_t2sql.errors import UserError
from jax_t2sql.models.files import read_json
from jax_t2sql.models.safetensors_reader import Box, TensorFile

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_WEIGHT = ".weight"
# Eight integers of four bits to a word, the first in its lowest bits, stored with this added.
_PER_WORD, _OFFSET = 8, 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Storage:
    """How a checkpoint keeps quantised weights.

    Attributes:
      kind: "plain"; "fp8", with `block` rows and columns to a scale; or "int4", with `group`
        numbers of a row to a scale.
    """

    kind: str = "plain"
    block: tuple[int, int] = (0, 0)
    group: int = 0


def read_storage(values: Mapping[str, Any]) -> Storage:
    """What config.json's quantization_config says.

    Raises:
      UserError: a form that is not read here.
    """
    config = values.get("quantization_config")
    if config is None:
        return Storage()
    method = config.get("quant_method") if isinstance(config, Mapping) else None
    try:
        if method == "fp8":
            rows, columns = config["weight_block_size"]
            return Storage(kind="fp8", block=(int(rows), int(columns)))
        if method == "compressed-tensors" and config.get("format") == "pack-quantized":
            (scheme,) = config["config_groups"].values()
            weights = scheme["weights"]
            wanted = (weights["num_bits"], weights["type"], weights["symmetric"])
            group = int(weights["group_size"])
            plain_inputs = not scheme.get("input_activations")
            if wanted == (4, "int", True) and plain_inputs and group % _PER_WORD == 0:
                return Storage(kind="int4", group=group)
    except (KeyError, TypeError, ValueError):
        pass
    raise UserError(
        f"config.json has quantization_config={config!r}, which is not supported; supported are "
        "fp8 with weight_block_size, and symmetric 4-bit pack-quantized compressed-tensors"
    )


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a model directory.

    Raises:
      UserError: there are none, or a shard named by the index is missing.
    """
    index = directory / INDEX
    if index.is_file():
        table = read_json(index).get("weight_map")
        if not isinstance(table, dict) or not table:
            raise UserError(f"{index} has no weight_map; download the model again")
        paths = [directory / Path(name).name for name in sorted(set(table.values()))]
        if missing := [path.name for path in paths if not path.is_file()]:
            raise UserError(
                f"{directory} lacks the shards {', '.join(missing)} that {INDEX} names; "
                "finish the download"
            )
        return paths
    if (directory / SINGLE).is_file():
        return [directory / SINGLE]
    raise UserError(
        f"{directory} holds neither {SINGLE} nor {INDEX}; weights in other formats must be "
        "converted with transformers (save_pretrained writes safetensors)"
    )


class Checkpoint:
    """Open files of a model. A quantised weight counts as one tensor, named like a plain one."""

    def __init__(self, files: list[TensorFile], storage: Storage):
        self.storage = storage
        self._files = {name: file for file in files for name in file.names()}
        self._scale, self._stored = {
            "plain": (None, _WEIGHT),
            "fp8": (".weight_scale_inv", _WEIGHT),
            "int4": (".weight_scale", ".weight_packed"),
        }[storage.kind]

    @classmethod
    @contextlib.contextmanager
    def open(cls, directory: Path, values: Mapping[str, Any]) -> Iterator["Checkpoint"]:
        """Opens the files of a directory whose config.json holds `values`.

        Raises:
          UserError: a file is missing or corrupt, or a form of storage that is not supported.
        """
        storage = read_storage(values)
        with contextlib.ExitStack() as stack:
            files = [
                stack.enter_context(contextlib.closing(TensorFile(path)))
                for path in weight_files(directory)
            ]
            yield cls(files, storage)

    def names(self) -> list[str]:
        """All tensors, in the order of the files; scales and the like are part of theirs."""
        names = []
        for name in self._files:
            stem, _, suffix = name.rpartition(".")
            if self._is_quantized(stem):
                if f".{suffix}" == self._stored:
                    names.append(stem + _WEIGHT)
            else:
                names.append(name)
        return names

    def is_quantized(self, name: str) -> bool:
        return self._is_quantized(name.removesuffix(_WEIGHT))

    def shape(self, name: str) -> tuple[int, ...]:
        stem = name.removesuffix(_WEIGHT)
        if not self._is_quantized(stem) or self.storage.kind == "fp8":
            return self._files[name].shape(name)
        rows, words = self._files[stem + self._stored].shape(stem + self._stored)
        return rows, words * _PER_WORD

    def read(self, name: str, box: Box | None = None) -> np.ndarray:
        """A tensor, or the part of it in a box; a quantised one multiplied out in float32."""
        stem = name.removesuffix(_WEIGHT)
        if not self._is_quantized(stem):
            return self._files[name].read(name, box)
        box = box if box is not None else tuple((0, size) for size in self.shape(name))
        if self.storage.kind == "fp8":
            return self._read_fp8(stem, box)
        group = self.storage.group
        rows, (first, last) = box
        start = first // group * group
        values, scales = self._read_int4(stem, (rows, (start, -(-last // group) * group)))
        whole = values.astype(np.float32) * np.repeat(scales, group, axis=1)
        return whole[:, first - start : last - start]

    def read_int4(self, name: str, box: Box, group: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Values and scales of a box of whole groups, if that is how they are stored."""
        stem = name.removesuffix(_WEIGHT)
        same = self.storage.kind == "int4" and self.storage.group == group
        return self._read_int4(stem, box) if same and self._is_quantized(stem) else None

    def _is_quantized(self, stem: str) -> bool:
        parts = (self._scale, self._stored)
        return self._scale is not None and all(stem + part in self._files for part in parts)

    def _read_int4(self, stem: str, box: Box) -> tuple[np.ndarray, np.ndarray]:
        rows, columns = box
        packed, scale = stem + self._stored, stem + self._scale
        # Groups are whole numbers of words.
        words = tuple(column // _PER_WORD for column in columns)
        groups = tuple(column // self.storage.group for column in columns)
        words_RW = self._files[packed].read(packed, (rows, words)).view(np.uint32)
        shifts = np.arange(_PER_WORD, dtype=np.uint32) * 4
        values = (words_RW[..., None] >> shifts & 15).astype(np.int8) - _OFFSET
        scales = self._files[scale].read(scale, (rows, groups)).astype(np.float32)
        return values.reshape(words_RW.shape[0], _PER_WORD * words_RW.shape[1]), scales

    def _read_fp8(self, stem: str, box: Box) -> np.ndarray:
        name, scale = stem + self._stored, stem + self._scale
        values = self._files[name].read(name, box).astype(np.float32)
        blocks = tuple(
            (first // size, -(-last // size))
            for (first, last), size in zip(box, self.storage.block, strict=True)
        )
        scales = self._files[scale].read(scale, blocks).astype(np.float32)
        for axis, ((first, last), size) in enumerate(zip(box, self.storage.block, strict=True)):
            scales = np.take(scales, np.arange(first, last) // size - blocks[axis][0], axis=axis)
        return values * scales
