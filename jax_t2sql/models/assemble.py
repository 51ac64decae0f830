"""The parameter tree from the tensors of a file: each device gets its own part and no more."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jax_t2sql.errors import UserError
from jax_t2sql.learner.arrays import ArrayDesc, ShardingRules, shards
from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.naming import FileTensor, Name, file_tensors, stacked_axes
from jax_t2sql.models.params import Params, describe_params
from jax_t2sql.models.quantized import Quantization, QuantizedKernel
from jax_t2sql.models.safetensors_reader import Box

# Large tensors are read and converted in pieces of about this many numbers.
_PIECE = 1 << 21
# XLA's CPU backend uses a host buffer in place if it starts at a multiple of this many bytes.
_ALIGNMENT = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A file, or several, that hold a model.

    Attributes:
      text: for messages.
      names: of all tensors.
      ignored: tensors that may be left over without changing the model.
      shape: of a tensor, in the file's orientation.
      read: the part of a tensor in a box, in the file's orientation.
      read_int4: values and scales of it where they are stored just so, in groups of a given size
        along the last axis; None where they are not.
    """

    text: str
    names: Collection[str]
    ignored: Callable[[str], bool]
    shape: Callable[[FileTensor], tuple[int, ...]]
    read: Callable[[FileTensor, Box], np.ndarray]
    read_int4: Callable[[FileTensor, Box, int], tuple[np.ndarray, np.ndarray] | None] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """How parameters are kept: dtype, quantisation, and where on a mesh; None: default device."""

    dtype: Any = np.float32
    quantization: Quantization | None = None
    mesh: Mesh | None = None
    rules: ShardingRules = ShardingRules()

    @property
    def batch_shards(self) -> int:
        """Devices, or groups of them, that the rows of a micro-batch are divided over."""
        return shards(self.mesh, self.rules.batch)


def assemble(config: ModelConfig, name: Name, source: Source, layout: Layout) -> Params:
    """Reads the parameter tree tensor by tensor.

    The host holds one device's part of one leaf, besides what stays on its own devices; every
    process reads only for the devices that it drives.

    Raises:
      UserError: a tensor is missing, of the wrong shape, or not part of this architecture.
      ValueError: the mesh cannot divide an array evenly.
    """
    wanted = file_tensors(config, name)
    _check(config, wanted, source)
    params: Params = {}
    descs = describe_params(config, layout.dtype)
    for keys, tensors in wanted.items():
        desc = descs
        for key in keys:
            desc = desc[key]
        node = params
        for key in keys[:-1]:
            node = node.setdefault(key, {})
        node[keys[-1]] = _read_leaf(keys, desc, tensors, source, layout)
    return params


def _check(config: ModelConfig, wanted: dict[Any, list[FileTensor]], source: Source) -> None:
    tensors = {tensor.name: tensor for parts in wanted.values() for tensor in parts}
    available = set(source.names)
    if missing := sorted(tensors.keys() - available):
        raise UserError(
            f"{source.text} lacks {len(missing)} of {len(tensors)} tensors of this "
            f"{config.architecture} model, the first is {missing[0]!r}; is the download complete?"
        )
    if extra := sorted(x for x in available - tensors.keys() if not source.ignored(x)):
        raise UserError(
            f"{source.text} holds tensors that a {config.architecture} model does not have, the "
            f"first of {len(extra)} is {extra[0]!r}; its configuration does not fit its weights"
        )
    for tensor in tensors.values():
        shape = source.shape(tensor)
        if shape != tensor.shape:
            raise UserError(
                f"tensor {tensor.name!r} of {source.text} has shape {list(shape)}; "
                f"the model's configuration asks for {list(tensor.shape)}"
            )


def _read_leaf(
    keys: tuple[str, ...],
    desc: ArrayDesc,
    tensors: list[FileTensor],
    source: Source,
    layout: Layout,
) -> Any:
    by_index = {tensor.index: tensor for tensor in tensors}
    lead = stacked_axes(desc)
    quantization = layout.quantization
    if quantization is not None and not quantization.covers(keys):
        quantization = None

    def block(box: Box) -> list[np.ndarray]:
        """The part of the leaf in a box, in our orientation: one array, or values and scales."""
        parts = [(desc.shape, desc.dtype)]
        if quantization is not None:
            kernel = quantization.describe("/".join(keys), desc)
            parts = [(x.shape, x.dtype) for x in (kernel.values, kernel.scales)]
        sizes = [stop - start for start, stop in box]
        outs = [
            _aligned_empty([*sizes[:-2], *_scaled(sizes[-2:], shape[-2:], desc.shape[-2:])], dtype)
            for shape, dtype in parts
        ]
        for index in itertools.product(*(range(*part) for part in box[:lead])):
            at = tuple(i - part[0] for i, part in zip(index, box, strict=False))
            _fill([out[at] for out in outs], by_index[index], box[lead:])
        return outs

    def _fill(outs: list[np.ndarray], tensor: FileTensor, box: Box) -> None:
        turned = tensor.leaf == "kernel"
        rows, *columns = box[::-1] if turned else box
        width = math.prod(stop - start for start, stop in columns)
        step = max(_PIECE // max(width, 1), 1)
        for start in range(rows[0], rows[1], step):
            stop = min(start + step, rows[1])
            arrays = _read_piece(tensor, ((start, stop), *columns))
            part = slice(start - rows[0], stop - rows[0])
            for out, array in zip(outs, arrays, strict=True):
                out[(..., part) if turned else part] = array

    def _read_piece(tensor: FileTensor, piece: Box) -> Sequence[np.ndarray]:
        if quantization is not None and quantization.bits == 4 and source.read_int4 is not None:
            stored = source.read_int4(tensor, piece, quantization.group)
            if stored is not None:
                return [tensor.to_file(array) for array in stored]
        values = tensor.to_file(source.read(tensor, piece))
        return [values] if quantization is None else quantization.quantize(values, desc.dtype)

    whole = tuple((0, size) for size in desc.shape)
    if layout.mesh is None:
        leaves = [jax.device_put(x, may_alias=True) for x in block(whole)]
    else:
        described = [desc]
        if quantization is not None:
            kernel = quantization.describe("/".join(keys), desc)
            described = [kernel.values, kernel.scales]
        leaves = _spread(desc, described, block, layout)
    # A leaf at a time on the host: transfers of the one before have ended.
    jax.block_until_ready(leaves)
    return QuantizedKernel(*leaves) if quantization is not None else leaves[0]


def _spread(
    desc: ArrayDesc,
    described: list[ArrayDesc],
    block: Callable[[Box], list[np.ndarray]],
    layout: Layout,
) -> list[jax.Array]:
    """Arrays on a mesh; devices that hold the same part share one reading of it."""
    shardings = [layout.rules.sharding(x, layout.mesh) for x in described]
    devices: dict[Box, list[jax.Device]] = {}
    for device, index in shardings[0].addressable_devices_indices_map(desc.shape).items():
        parts = zip(index, desc.shape, strict=True)
        box = tuple(part.indices(size)[:2] for part, size in parts)
        devices.setdefault(box, []).append(device)
    pieces: list[list[jax.Array]] = [[] for _ in described]
    for box, holders in devices.items():
        for place, array in zip(pieces, block(box), strict=True):
            place.extend(jax.device_put(array, device, may_alias=True) for device in holders)
            jax.block_until_ready(place)
    return [
        jax.make_array_from_single_device_arrays(x.shape, sharding, place)
        for x, sharding, place in zip(described, shardings, pieces, strict=True)
    ]


def _scaled(sizes: list[int], shape: tuple[int, ...], whole: tuple[int, ...]) -> list[int]:
    """Sizes of a part of an array whose shape is a fraction of the whole one's."""
    return [size * own // full for size, own, full in zip(sizes, shape, whole, strict=True)]


def _aligned_empty(shape: list[int], dtype: Any) -> np.ndarray:
    dtype = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    buffer = np.empty(size + _ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % _ALIGNMENT
    return buffer[start : start + size].view(dtype).reshape(shape)
