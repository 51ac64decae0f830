"""The experts of a layer as grouped matrix products over tokens sorted by expert."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from jax_t2sql.learner.arrays import ShardingRules, mesh_axes
from jax_t2sql.learner.lora import LoraPair

_MODULES = ("expert_gate_proj", "expert_up_proj", "expert_down_proj")


@dataclasses.dataclass(frozen=True)
class ExpertMesh:
    """The mesh that experts are computed on, and which of its axes split what."""

    mesh: Mesh
    rules: ShardingRules

    def specs(self, *axes: str | None) -> PartitionSpec:
        return self.rules.spec(axes)

    @property
    def expert_axes(self) -> tuple[str, ...]:
        return mesh_axes(self.rules.expert)

    @property
    def summed_axes(self) -> tuple[str, ...]:
        """Axes along which devices hold parts of a token's sum."""
        return (*self.expert_axes, *mesh_axes(self.rules.mlp))


def expert_mesh(mesh: Mesh | None, rules: ShardingRules | None) -> ExpertMesh | None:
    """The two together; None without a mesh."""
    return None if mesh is None else ExpertMesh(mesh, rules or ShardingRules())


def run_experts(
    layer: dict[str, Any],
    pairs: dict[str, Any],
    x_ND: jax.Array,
    experts_NK: jax.Array,
    weights_NK: jax.Array,
    mesh: ExpertMesh | None = None,
) -> jax.Array:
    """Σ_k weight_k · expert_k(x) of every token, [N, D]; each expert is a SwiGLU (2002.05202).

    On a mesh a device holds its rows whole, its share of the experts and of their inner width. It
    computes what it holds of its rows' choices, and a sum over those axes completes it. So tokens
    never travel, and what is summed has the size of the input.
    """
    kernels = {name: layer[name]["kernel"] for name in _MODULES}
    pairs = {name: pairs[name] for name in _MODULES if name in pairs}
    if mesh is None:
        return _own_experts(kernels, pairs, x_ND, experts_NK, weights_NK, jnp.int32(0))

    def on_device(kernels, pairs, x_ND, experts_NK, weights_NK):
        first = jnp.int32(0)
        if mesh.expert_axes:
            count = kernels[_MODULES[0]].shape[0]
            first = count * jax.lax.axis_index(mesh.expert_axes)
        if not mesh.summed_axes:
            return _own_experts(kernels, pairs, x_ND, experts_NK, weights_NK, first)
        # Each device takes other rows of x, which a gather's gradient does not see by itself.
        x_ND = jax.lax.pcast(x_ND, mesh.summed_axes, to="varying")
        out_ND = _own_experts(kernels, pairs, x_ND, experts_NK, weights_NK, first)
        return jax.lax.psum(out_ND, mesh.summed_axes)

    into, back, rows = ("expert", None, "mlp"), ("expert", "mlp", None), mesh.specs("batch")
    axes = dict(zip(_MODULES, (into, into, back), strict=True))

    def pair_specs(name: str) -> LoraPair:
        expert, inputs, outputs = axes[name]
        a, b = mesh.specs(expert, inputs, None), mesh.specs(expert, None, outputs)
        return LoraPair(a=a, b=b, scale=pairs[name].scale)

    return jax.shard_map(
        on_device,
        mesh=mesh.mesh,
        in_specs=(
            {name: mesh.specs(*axes[name]) for name in kernels},
            {name: pair_specs(name) for name in pairs},
            *(rows, rows, rows),
        ),
        out_specs=rows,
    )(kernels, pairs, x_ND, experts_NK, weights_NK)


def _own_experts(kernels, pairs, x_ND, experts_NK, weights_NK, first: jax.Array) -> jax.Array:
    """The sum over experts [first, first + E), whose kernels these are."""
    count = kernels[_MODULES[0]].shape[0]
    tokens, chosen = experts_NK.shape
    # Choices of other experts are sorted to the end, beyond the last group.
    expert_M = experts_NK.reshape(-1) - first
    expert_M = jnp.where((expert_M >= 0) & (expert_M < count), expert_M, count)
    order_M = jnp.argsort(expert_M)
    sizes_E = jnp.sum(expert_M[:, None] == jnp.arange(count), axis=0, dtype=jnp.int32)

    def grouped(name: str, x_MI: jax.Array) -> jax.Array:
        return grouped_linear(x_MI, kernels[name], pairs.get(name), sizes_E)

    # Rows beyond the groups come out of a grouped product undefined, forwards and backwards.
    own_M1 = (expert_M[order_M] < count)[:, None]
    x_MD = jnp.where(own_M1, x_ND[order_M // chosen], 0)
    gated_MF = jax.nn.silu(grouped("expert_gate_proj", x_MD)) * grouped("expert_up_proj", x_MD)
    out_MD = jnp.where(own_M1, grouped("expert_down_proj", gated_MF), 0)
    # Back by a gather: it keeps the order of a token's summands, which a scattered sum does not.
    out_NKD = out_MD[jnp.argsort(order_M)].reshape(tokens, chosen, -1)
    return jnp.einsum("nkd,nk->nd", out_NKD, weights_NK.astype(out_NKD.dtype))


def grouped_linear(
    x_MI: jax.Array, kernel_EIO: jax.Array, pair: LoraPair | None, sizes_E: jax.Array
) -> jax.Array:
    """Rows of x times their group's kernel and low-rank pair: the first sizes[0] rows use kernel 0,
    the next sizes[1] kernel 1, and so on. Rows beyond the last group are undefined."""
    y_MO = jax.lax.ragged_dot(x_MI, kernel_EIO.astype(x_MI.dtype), sizes_E)
    if pair is not None:
        low_MR = jax.lax.ragged_dot(x_MI, pair.a.astype(x_MI.dtype), sizes_E)
        y_MO += pair.scale * jax.lax.ragged_dot(low_MR, pair.b.astype(x_MI.dtype), sizes_E)
    return y_MO
