"""Splash attention, JAX's block-sparse kernel for TPUs, over packed rows."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from jax_t2sql.models.experts import ExpertMesh

# The kernel wants whole tiles of this many queries and keys.
_LANES = 128
_MAX_BLOCK = 512


def splash_attention(
    q_BTHK: jax.Array,
    k_BTGK: jax.Array,
    v_BTGK: jax.Array,
    segments_BT: jax.Array,
    mesh: ExpertMesh | None = None,
    *,
    interpret: bool = False,
) -> jax.Array:
    """Causal attention within segments, [B, T, H, K]; see `row_attention`.

    Args:
      mesh: a Pallas kernel is opaque to the partitioner, so that on a mesh it runs on each device's
        own rows and heads in a `jax.shard_map`.
      interpret: run the kernel in Python, on any platform, to test it.
    """
    local = functools.partial(_local, interpret=interpret)
    if mesh is not None:
        queries = mesh.specs("batch", None, "heads", None)
        keys = mesh.specs("batch", None, "kv_heads", None)
        local = jax.shard_map(
            local,
            mesh=mesh.mesh,
            in_specs=(queries, keys, keys, mesh.specs("batch", None)),
            out_specs=queries,
            check_vma=False,
        )
    return local(q_BTHK, k_BTGK, v_BTGK, segments_BT)


def _local(q_BTHK, k_BTGK, v_BTGK, segments_BT, *, interpret):
    # Imported here: Pallas for TPUs takes a second to load, and few who train on CPU need it.
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        splash_attention_kernel as kernels,
    )
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        splash_attention_mask as masks,
    )

    batch, length, heads, size = q_BTHK.shape
    groups, padded = k_BTGK.shape[2], math.ceil(length / _LANES) * _LANES
    q_BTHK = q_BTHK * np.asarray(1 / math.sqrt(size), q_BTHK.dtype)

    def pad(x, axis=1):
        widths = [(0, 0)] * x.ndim
        widths[axis] = (0, padded - length)
        return jnp.pad(x, widths)

    block = max(b for b in range(_LANES, _MAX_BLOCK + 1, _LANES) if padded % b == 0)
    sides = ("block_q", "block_kv", "block_kv_compute", "block_q_dkv", "block_kv_dkv",
             "block_kv_dkv_compute", "block_q_dq", "block_kv_dq")  # fmt: skip
    kernel = kernels.make_splash_mqa_single_device(
        masks.MultiHeadMask([masks.CausalMask((padded, padded))] * (heads // groups)),
        block_sizes=kernels.BlockSizes(**dict.fromkeys(sides, block)),
        interpret=interpret,
    )

    def one_row(q_GRTK, k_GTK, v_GTK, segments_T):
        ids = kernels.SegmentIds(q=segments_T, kv=segments_T)
        return jax.vmap(lambda q, k, v: kernel(q, k, v, segment_ids=ids))(q_GRTK, k_GTK, v_GTK)

    q_BGRTK = pad(q_BTHK).transpose(0, 2, 1, 3).reshape(batch, groups, -1, padded, size)
    k_BGTK, v_BGTK = (pad(x).transpose(0, 2, 1, 3) for x in (k_BTGK, v_BTGK))
    out_BGRTK = jax.vmap(one_row)(q_BGRTK, k_BGTK, v_BGTK, pad(segments_BT))
    return out_BGRTK.reshape(batch, heads, padded, size).transpose(0, 2, 1, 3)[:, :length]
