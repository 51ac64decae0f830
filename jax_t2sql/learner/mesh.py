"""The mesh of devices that `ShardingRules` speaks of."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
from jax.sharding import AxisType, Mesh

MESH_AXES = ("data", "fsdp", "tensor", "expert")


def make_mesh(
    *,
    data: int = 1,
    fsdp: int = -1,
    tensor: int = 1,
    expert: int = 1,
    devices: Sequence[jax.Device] | None = None,
) -> Mesh:
    """A mesh with the axes data, fsdp, tensor and expert over all devices of all hosts.

    Args:
      data: copies of the model, each with rows of its own.
      fsdp: devices that share a copy's parameters, each with rows of its own; -1 (possible for one
        of the four) takes what the others leave.
      tensor, expert: devices that divide the work on the same rows.
      devices: default `jax.devices()`.

    Raises:
      ValueError: the sizes do not multiply to the number of devices.

    >>> dict(make_mesh(devices=jax.devices()[:1]).shape)
    {'data': 1, 'fsdp': 1, 'tensor': 1, 'expert': 1}
    """
    devices = jax.devices() if devices is None else list(devices)
    sizes = dict(zip(MESH_AXES, (data, fsdp, tensor, expert), strict=True))
    open_axes = [name for name, size in sizes.items() if size == -1]
    known = math.prod(size for size in sizes.values() if size != -1)
    if len(open_axes) == 1 and known > 0 and len(devices) % known == 0:
        sizes[open_axes[0]] = len(devices) // known
    if min(sizes.values()) < 1 or math.prod(sizes.values()) != len(devices):
        shown = " × ".join(f"{name} {size}" for name, size in sizes.items())
        raise ValueError(
            f"a mesh of {shown} does not fit {len(devices)} devices: make the sizes multiply to "
            "that, with -1 for at most one"
        )
    # Auto: shardings inside a jitted function follow from those of its arguments.
    return jax.make_mesh(
        tuple(sizes.values()), MESH_AXES, axis_types=(AxisType.Auto,) * 4, devices=devices
    )
