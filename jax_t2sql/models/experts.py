"""The experts of a layer as grouped matrix products over tokens sorted by expert."""

from typing import Any

import jax
import jax.numpy as jnp

from jax_t2sql.learner.lora import LoraPair

_KERNELS = ("expert_gate_proj", "expert_up_proj", "expert_down_proj")


def run_experts(
    layer: dict[str, Any],
    pairs: dict[str, Any],
    x_ND: jax.Array,
    experts_NK: jax.Array,
    weights_NK: jax.Array,
) -> jax.Array:
    """Σ_k weight_k · expert_k(x) of every token, [N, D]; each expert is a SwiGLU (2002.05202)."""
    count = layer["expert_gate_proj"]["kernel"].shape[0]
    tokens, chosen = experts_NK.shape
    expert_M = experts_NK.reshape(-1)
    order_M = jnp.argsort(expert_M)
    sizes_E = jnp.bincount(expert_M, length=count)

    def grouped(name: str, x_MI: jax.Array) -> jax.Array:
        return grouped_linear(x_MI, layer[name]["kernel"], pairs.get(name), sizes_E)

    x_MD = x_ND[order_M // chosen]
    gated_MF = jax.nn.silu(grouped("expert_gate_proj", x_MD)) * grouped("expert_up_proj", x_MD)
    out_MD = grouped("expert_down_proj", gated_MF)
    # Back by a gather: it keeps the order of a token's summands, which a scattered sum does not.
    out_NKD = out_MD[jnp.argsort(order_M)].reshape(tokens, chosen, -1)
    return jnp.einsum("nkd,nk->nd", out_NKD, weights_NK.astype(out_NKD.dtype))


def grouped_linear(
    x_MI: jax.Array, kernel_EIO: jax.Array, pair: LoraPair | None, sizes_E: jax.Array
) -> jax.Array:
    """Rows of x times their group's kernel and low-rank pair: the first sizes[0] rows use kernel 0,
    the next sizes[1] kernel 1, and so on."""
    y_MO = jax.lax.ragged_dot(x_MI, kernel_EIO.astype(x_MI.dtype), sizes_E)
    if pair is not None:
        low_MR = jax.lax.ragged_dot(x_MI, pair.a.astype(x_MI.dtype), sizes_E)
        y_MO += pair.scale * jax.lax.ragged_dot(low_MR, pair.b.astype(x_MI.dtype), sizes_E)
    return y_MO
