"""The feed-forward part of a layer: one SwiGLU, or a mixture of experts."""

from typing import Any

import jax
from jax.sharding import PartitionSpec

from jax_t2sql.models.experts import ExpertMesh, run_experts
from jax_t2sql.models.modules import linear
from jax_t2sql.models.routing import route
from jax_t2sql.models.shapes import MoEConfig


def swiglu(
    layer: dict[str, Any], pairs: dict[str, Any], h_BTD: jax.Array, prefix: str = ""
) -> jax.Array:
    """down(silu(gate(h)) · up(h)) (arXiv:2002.05202); `prefix` tells its modules from others'."""
    gate_BTF = linear(layer, pairs, f"{prefix}gate_proj", h_BTD)
    up_BTF = linear(layer, pairs, f"{prefix}up_proj", h_BTD)
    return linear(layer, pairs, f"{prefix}down_proj", jax.nn.silu(gate_BTF) * up_BTF)


def mixture(
    moe: MoEConfig,
    layer: dict[str, Any],
    pairs: dict[str, Any],
    h_BTD: jax.Array,
    replay_BTK: jax.Array | None = None,
    mesh: ExpertMesh | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Routed experts plus the shared one: the output [B, T, D] and the experts used [B, T, K]."""
    batch, length, _ = h_BTD.shape
    h_ND = h_BTD.reshape(batch * length, -1)
    replay_NK = None if replay_BTK is None else replay_BTK.reshape(batch * length, -1)
    experts_NK, weights_NK = _route_own_rows(moe, layer["router"], h_ND, replay_NK, mesh)
    out_ND = run_experts(layer, pairs, h_ND, experts_NK, weights_NK, mesh)
    out_BTD = out_ND.reshape(h_BTD.shape)
    if moe.shared_size:
        out_BTD = out_BTD + swiglu(layer, pairs, h_BTD, "shared_")
    return out_BTD, experts_NK.reshape(batch, length, -1)


def _route_own_rows(
    moe: MoEConfig,
    router: dict[str, Any],
    h_ND: jax.Array,
    replay_NK: jax.Array | None,
    mesh: ExpertMesh | None,
) -> tuple[jax.Array, jax.Array]:
    """`route`, on a mesh by every device for its own rows: the partitioner would gather the scores
    of all rows for the choice of the best."""
    if mesh is None:
        return route(moe, router, h_ND, replay_NK)
    rows = mesh.specs("batch")
    given = (h_ND,) if replay_NK is None else (h_ND, replay_NK)
    return jax.shard_map(
        lambda router, *given: route(moe, router, *given),
        mesh=mesh.mesh,
        in_specs=(PartitionSpec(), *[rows] * len(given)),
        out_specs=(rows, rows),
    )(router, *given)
