"""Fully sharded data parallelism: each layer's parameters are gathered where the layer begins.

Left to itself the partitioner may as well send activations around, or gather the whole stack before
the scan over layers. These constraints leave it one way (ZeRO-3, arXiv 1910.02054): rows stay on
their device, and a device holds the parameters of one layer at a time whole.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from jax_t2sql.learner.arrays import ArrayDesc, mesh_axes
from jax_t2sql.models.experts import ExpertMesh


def own_rows(mesh: ExpertMesh | None, x_BTD: jax.Array) -> jax.Array:
    """Activations split over the batch alone."""
    if mesh is None:
        return x_BTD
    spec = PartitionSpec(mesh.specs("batch")[0], None, None)
    return jax.lax.with_sharding_constraint(x_BTD, NamedSharding(mesh.mesh, spec))


def gathered(
    mesh: ExpertMesh | None, descs: dict[str, Any], layer: dict[str, Any]
) -> dict[str, Any]:
    """One layer's parameters, whole along the mesh axes that split the batch.

    What is split over other axes (tensor, expert) stays so. Quantised kernels are left to the
    partitioner, which knows what they become.

    Args:
      descs: of the parameters, or of the stack that the layer is a slice of.
    """
    if mesh is None:
        return layer
    batch_axes = set(mesh_axes(mesh.rules.batch))

    def gather(desc: ArrayDesc, array: Any) -> Any:
        if not isinstance(array, jax.Array):
            return array
        spec = mesh.rules.spec(desc.axes[-array.ndim :])
        kept = (None if batch_axes & set(mesh_axes(entry)) else entry for entry in spec)
        sharding = NamedSharding(mesh.mesh, PartitionSpec(*kept))
        return jax.lax.with_sharding_constraint(array, sharding)

    return jax.tree.map(gather, descs, layer)
