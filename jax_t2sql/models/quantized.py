"""Frozen kernels in 8 or 4 bits: groups of numbers that share a scale, multiplied out when used."""

import dataclasses
import re
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn.initializers import zeros

from jax_t2sql.errors import UserError
from jax_t2sql.learner.arrays import ArrayDesc, is_array

_TYPES = {8: np.dtype(jnp.int8), 4: np.dtype(jnp.int4)}
# Symmetric, so that zero is exact and no offset is stored.
_LIMITS = {8: 127, 4: 7}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quantization:
    """How kernels are stored. Embedding, unembedding, norms, biases and routers never are.

    Attributes:
      bits: 8 or 4 for each number.
      group: numbers along the input axis that share a scale.
      targets: regular expression, found in the path of the modules to quantise, such as "expert_";
        the default is every module of every layer.
    """

    bits: Literal[4, 8] = 8
    group: int = 128
    targets: str = ""

    def __post_init__(self):
        if self.bits not in _TYPES:
            raise UserError(f"bits is {self.bits}; kernels can be stored in 8 or 4 bits")
        if self.group < 1:
            raise UserError(f"group is {self.group}; it must be at least 1")

    def covers(self, keys: tuple[str, ...]) -> bool:
        """Whether the leaf at these keys is quantised."""
        *module, leaf = keys
        stacked = len(module) > 1  # modules of layers are deeper in the tree than all others
        return stacked and leaf == "kernel" and bool(re.search(self.targets, "/".join(module)))

    def describe(self, name: str, desc: ArrayDesc) -> "QuantizedKernel":
        """The descriptions of the two arrays that stand for a described kernel.

        Raises:
          UserError: the group does not divide the kernel's input width.
        """
        *lead, inputs, outputs = desc.shape
        if inputs % self.group:
            raise UserError(
                f"quantisation groups of {self.group} do not divide the {inputs} inputs of {name}: "
                "choose a group that does"
            )
        scales = (*lead, inputs // self.group, outputs)
        # Zero: values come from a file or from `quantize_params`.
        return QuantizedKernel(
            values=ArrayDesc(desc.shape, _TYPES[self.bits], desc.axes, zeros),
            scales=ArrayDesc(scales, desc.dtype, desc.axes, zeros),
        )

    def quantize(self, kernel: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
        """Values and scales of kernels [..., in, out]; scales of `dtype`."""
        *lead, inputs, outputs = kernel.shape
        grouped = np.asarray(kernel, np.float32).reshape(*lead, -1, self.group, outputs)
        limit = _LIMITS[self.bits]
        scales = (np.abs(grouped).max(axis=-2) / limit).astype(dtype)
        divisor = scales.astype(np.float32)
        divisor[divisor == 0] = 1
        values = np.clip(np.rint(grouped / divisor[..., None, :]), -limit, limit)
        return values.astype(np.int8).astype(_TYPES[self.bits]).reshape(kernel.shape), scales


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class QuantizedKernel:
    """Kernels [..., I, O] as integers times scales [..., I/G, O]. Acts as one array of its dtype.

    `astype` multiplies out; in a matrix product XLA fuses that into reading the operand, so that
    the kernel never exists whole in the wider type. Being frozen it has no gradient.
    """

    values: Any
    scales: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def ndim(self) -> int:
        return len(self.values.shape)

    @property
    def dtype(self) -> Any:
        return self.scales.dtype

    @property
    def axes(self) -> tuple[str | None, ...] | None:
        return getattr(self.values, "axes", None)

    def astype(self, dtype: Any) -> jax.Array:
        *lead, inputs, outputs = self.shape
        groups = self.scales.shape[-2]
        grouped = self.values.reshape(*lead, groups, inputs // groups, outputs)
        scaled = grouped.astype(dtype) * self.scales[..., None, :].astype(dtype)
        return scaled.reshape(self.shape)

    def __getitem__(self, index: Any) -> "QuantizedKernel":
        """Kernels of some layers or experts; both arrays have the same leading axes."""
        return QuantizedKernel(values=self.values[index], scales=self.scales[index])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        whole = np.asarray(self.astype(jnp.float32))
        return whole.astype(dtype or self.dtype)


def quantize_params(params: dict[str, Any], quantization: Quantization) -> dict[str, Any]:
    """The same parameters with the covered kernels quantised, one by one on the host."""

    def convert(path, leaf):
        keys = tuple(entry.key for entry in path)
        if not quantization.covers(keys):
            return leaf
        axes = (None,) * leaf.ndim
        desc = ArrayDesc(leaf.shape, leaf.dtype, axes, zeros)
        quantization.describe("/".join(keys), desc)  # refuses a group that does not fit
        values, scales = quantization.quantize(np.asarray(leaf), leaf.dtype)
        return QuantizedKernel(values=jnp.asarray(values), scales=jnp.asarray(scales))

    return jax.tree_util.tree_map_with_path(convert, params, is_leaf=is_array)
