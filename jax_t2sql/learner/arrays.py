"""One description of an array, from which its abstract value, sharding and initial value derive."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

MeshAxes = str | tuple[str, ...] | None
Tree = Any
"""A pytree of arrays, or of what the docstring says stands in their place."""


@dataclasses.dataclass(frozen=True)
class ArrayDesc:
    """Shape, dtype, logical axes and initialiser of one array. A leaf in pytrees.

    Attributes:
      shape: in elements.
      axes: one logical name a dimension, resolved by `ShardingRules`; None is never sharded.
      init: (key, shape, dtype) -> array.
    """

    shape: tuple[int, ...]
    dtype: Any
    axes: tuple[str | None, ...]
    init: Callable[[jax.Array, tuple[int, ...], Any], jax.Array]

    def __post_init__(self):
        if len(self.shape) != len(self.axes):
            raise ValueError(
                f"an array of shape {self.shape} needs {len(self.shape)} axis names, "
                f"got {self.axes}"
            )


@dataclasses.dataclass(frozen=True)
class ShardingRules:
    """Which mesh axes each logical axis is split over. None leaves it whole.

    The defaults suit a mesh with the axes data, fsdp, tensor and expert, each of any size from 1.
    A model with other logical axes subclasses this dataclass and adds a field for each.
    """

    batch: MeshAxes = ("data", "fsdp")
    vocab: MeshAxes = "tensor"
    embed: MeshAxes = "fsdp"
    heads: MeshAxes = "tensor"
    kv_heads: MeshAxes = "tensor"
    mlp: MeshAxes = "tensor"
    expert: MeshAxes = "expert"
    layers: MeshAxes = None
    lora_rank: MeshAxes = None

    def spec(self, axes: tuple[str | None, ...]) -> PartitionSpec:
        """The partition of an array with these logical axes.

        Raises:
          ValueError: an axis has no rule, or two axes claim one mesh axis.

        >>> ShardingRules().spec(("layers", "embed", "mlp"))
        P(None, 'fsdp', 'tensor')
        """
        taken: dict[str, str] = {}
        entries: list[MeshAxes] = []
        for logical in axes:
            entry = None if logical is None else self._rule(logical)
            for mesh_axis in mesh_axes(entry):
                if mesh_axis in taken:
                    raise ValueError(
                        f"logical axes {taken[mesh_axis]!r} and {logical!r} of one array both map "
                        f"to mesh axis {mesh_axis!r}: change one of the two rules"
                    )
                taken[mesh_axis] = logical
            entries.append(entry)
        return PartitionSpec(*entries)

    def sharding(self, desc: ArrayDesc, mesh: Mesh) -> NamedSharding:
        """The sharding of a described array on a mesh.

        Raises:
          ValueError: as `spec`; or a rule names an axis that the mesh lacks; or a dimension cannot
            be divided evenly.
        """
        spec = self.spec(desc.axes)
        for size, logical, entry in zip(desc.shape, desc.axes, spec, strict=True):
            shards = 1
            for mesh_axis in mesh_axes(entry):
                if mesh_axis not in mesh.shape:
                    raise ValueError(
                        f"logical axis {logical!r} maps to mesh axis {mesh_axis!r}, but the mesh "
                        f"has only {tuple(mesh.shape)}"
                    )
                shards *= mesh.shape[mesh_axis]
            if size % shards:
                raise ValueError(
                    f"axis {logical!r} of an array of shape {desc.shape} has {size} elements, not "
                    f"a multiple of the {shards} shards of {entry!r}: change the rule or the mesh"
                )
        return NamedSharding(mesh, spec)

    def _rule(self, logical: str) -> MeshAxes:
        known = [field.name for field in dataclasses.fields(self)]
        if logical not in known:
            raise ValueError(f"no sharding rule for logical axis {logical!r}, only for {known}")
        return getattr(self, logical)


def mesh_axes(entry: MeshAxes) -> tuple[str, ...]:
    """The mesh axes of a rule, as a tuple."""
    return () if entry is None else (entry,) if isinstance(entry, str) else entry


def shards(mesh: Mesh | None, entry: MeshAxes) -> int:
    """Into how many parts a rule divides an axis; without a mesh one."""
    return 1 if mesh is None else math.prod(mesh.shape[axis] for axis in mesh_axes(entry))


def shardings(descs: Tree, mesh: Mesh, rules: ShardingRules) -> Tree:
    """The `NamedSharding` of every described array."""
    return jax.tree.map(lambda desc: rules.sharding(desc, mesh), descs)


def abstract_arrays(descs: Tree) -> Tree:
    """The `jax.ShapeDtypeStruct` of every described array."""
    return jax.tree.map(lambda desc: jax.ShapeDtypeStruct(desc.shape, desc.dtype), descs)


def init_arrays(descs: Tree, key: jax.Array) -> Tree:
    """Initial values, each leaf with a key of its own."""
    leaves, treedef = jax.tree.flatten(descs)
    keys = jax.random.split(key, max(len(leaves), 1))
    values = [d.init(k, d.shape, d.dtype) for d, k in zip(leaves, keys, strict=False)]
    return jax.tree.unflatten(treedef, [jnp.asarray(value) for value in values])


def is_array(node: Any) -> bool:
    """Whether a node of a tree stands for one array: it has a shape and a dtype.

    True of arrays, their descriptions, and pytrees that act as one array, such as a quantised
    kernel, which is made of several.
    """
    return hasattr(node, "shape") and hasattr(node, "dtype")


def logical_axes(leaf: Any) -> tuple[str | None, ...]:
    """Axes of an `ArrayDesc`; an array, which has no names, counts as unsharded."""
    return getattr(leaf, "axes", None) or (None,) * len(leaf.shape)
