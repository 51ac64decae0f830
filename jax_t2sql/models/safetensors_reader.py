"""Parts of tensors out of a safetensors file, without mapping it into memory.

The library's own slices map the file, so that everything ever read counts as the process' memory
until the file is closed. Reading ranges keeps no more than what was asked for.
"""

import json
import math
import os
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jax_t2sql.errors import UserError

Box = tuple[tuple[int, int], ...]
"""Start and stop along every axis, within the tensor."""

_TYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": jnp.bfloat16,
    "F8_E4M3": jnp.float8_e4m3fn,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
# The format's own bound of its header, in bytes.
_MAX_HEADER = 100_000_000
# Rows of which only some columns are wanted are read in pieces of about this many bytes.
_PIECE = 1 << 23


class TensorFile:
    """An open safetensors file: shapes and parts of its tensors by name."""

    def __init__(self, path: Path):
        """Raises UserError unless the file is complete and its header makes sense."""
        self.path = path
        try:
            self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by `close`
        except OSError as error:
            raise self._corrupt(error.strerror or str(error)) from error
        try:
            self._entries, self._start = self._read_header()
        except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
            self.close()
            raise self._corrupt(str(error)) from error

    def close(self) -> None:
        self._file.close()

    def names(self) -> list[str]:
        return list(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._entries[name]["shape"])

    def dtype(self, name: str) -> np.dtype:
        return np.dtype(_TYPES[self._entries[name]["dtype"]])

    def read(self, name: str, box: Box | None = None) -> np.ndarray:
        """A tensor of up to two axes, or the part of it in a box, in the file's dtype."""
        shape, dtype = self.shape(name), self.dtype(name)
        box = box if box is not None else tuple((0, size) for size in shape)
        wanted = tuple(stop - start for start, stop in box)
        out = np.empty(wanted, dtype)
        start = self._start + self._entries[name]["data_offsets"][0]
        if len(shape) < 2:
            first = box[0][0] if shape else 0
            self._fill(out, start + first * dtype.itemsize)
            return out
        if len(shape) > 2:
            raise UserError(
                f"tensor {name!r} of {self.path} has shape {list(shape)}; weights of more than two "
                "axes are not supported"
            )
        (first, last), columns = box
        width = shape[1] * dtype.itemsize
        if wanted[1] == shape[1]:
            self._fill(out, start + first * width)
            return out
        step = max(_PIECE // max(width, 1), 1)
        for row in range(first, last, step):
            count = min(step, last - row)
            piece = np.empty((count, shape[1]), dtype)
            self._fill(piece, start + row * width)
            out[row - first : row - first + count] = piece[:, slice(*columns)]
        return out

    def _fill(self, array: np.ndarray, offset: int) -> None:
        view = memoryview(array.reshape(-1).view(np.uint8))
        while view:
            # One call reads at most 2 GiB.
            count = os.preadv(self._file.fileno(), [view[: 1 << 30]], offset)
            if not count:
                raise self._corrupt("its data end early")
            view, offset = view[count:], offset + count

    def _read_header(self) -> tuple[dict[str, dict[str, Any]], int]:
        size = os.fstat(self._file.fileno()).st_size
        length = int.from_bytes(self._file.read(8), "little")
        if size < 8 or not 2 <= length <= min(size - 8, _MAX_HEADER):
            raise ValueError(f"its header of {length} bytes does not fit in {size}")
        entries = json.loads(self._file.read(length))
        entries.pop("__metadata__", None)
        data = size - 8 - length
        for name, entry in entries.items():
            begin, end = entry["data_offsets"]
            if entry["dtype"] not in _TYPES:
                raise ValueError(f"tensor {name!r} has the unknown type {entry['dtype']}")
            itemsize = np.dtype(_TYPES[entry["dtype"]]).itemsize
            if not 0 <= begin <= end <= data:
                raise ValueError(f"tensor {name!r} lies outside the file")
            if end - begin != math.prod(entry["shape"]) * itemsize:
                raise ValueError(f"tensor {name!r} has another size than its shape")
        return entries, 8 + length

    def _corrupt(self, reason: str) -> UserError:
        return UserError(f"{self.path} is corrupt or cut off ({reason}); get it again")
