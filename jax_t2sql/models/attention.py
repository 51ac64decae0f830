"""Attention of training rows: one function, and the best means that a platform has."""

import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from jax_t2sql.models import tiled_attention as tiled
from jax_t2sql.models.experts import ExpertMesh
from jax_t2sql.models.splash_attention import splash_attention

SAVED = "attention"
"""Name of what attention's own backward pass needs, for `jax.checkpoint` policies."""
Implementation = Literal["xla", "cudnn", "splash"]
PrefixKV = tuple[jax.Array, jax.Array]
"""Keys and values of C prefix rows in one layer: k_CPGK and v_CPGK."""


class RowLayout(NamedTuple):
    """Which tokens of packed rows see which: the same for all layers, so made once.

    Attributes:
      segments_BT: int32; a token sees earlier tokens of its own segment; 0 is padding.
      prefixes_BT: int32; the segment of its prefix row that a token sees whole, 0: none.
      prefix_segments_CP: of C prefix rows; row b belongs to prefix row b // (B / C).
      own, prefix: the tiles of the two parts, for the XLA implementation.
    """

    segments_BT: jax.Array
    prefixes_BT: jax.Array | None
    prefix_segments_CP: jax.Array | None
    own: tiled.Sight
    prefix: tiled.Sight | None


def row_layout(
    segments_BT: jax.Array,
    prefixes_BT: jax.Array | None = None,
    prefix_segments_CP: jax.Array | None = None,
) -> RowLayout:
    """The layout of rows with these segments; without the other two, of rows without prefixes."""
    own, prefix = tiled.sight(segments_BT, segments_BT, causal=True), None
    if prefixes_BT is not None:
        # The rows of one prefix row follow one another: together they are its queries.
        queries = prefixes_BT.reshape(prefix_segments_CP.shape[0], -1)
        prefix = tiled.sight(queries, prefix_segments_CP, causal=False)
    return RowLayout(segments_BT, prefixes_BT, prefix_segments_CP, own, prefix)


def row_attention(
    q_BTHK: jax.Array,
    k_BTGK: jax.Array,
    v_BTGK: jax.Array,
    layout: RowLayout,
    prefix: PrefixKV | None = None,
    *,
    implementation: Implementation | None = None,
    mesh: ExpertMesh | None = None,
) -> jax.Array:
    """softmax(q kᵀ / √K) v over what the layout lets each token see; [B, T, H, K].

    G key/value heads serve H = G·R query heads, consecutive ones sharing (GQA, arXiv 2305.13245).
    Outputs of padding are finite and mean nothing.

    Args:
      prefix: keys and values of the layout's prefix rows; gradients flow into them.
      implementation: "cudnn" (NVIDIA GPUs; float16 and bfloat16), "splash" (TPUs; rows without
        prefixes) or "xla" (everywhere). None: the best for the platform.
      mesh: the mesh that the arrays are split over, which splash attention must know.

    Raises:
      ValueError: splash attention was asked for and there is a prefix.
    """
    match implementation or _best(q_BTHK.dtype, prefix):
        case "cudnn":
            return masked_attention(q_BTHK, k_BTGK, v_BTGK, layout, prefix, implementation="cudnn")
        case "splash":
            if prefix is not None:
                raise ValueError("splash attention has no prefix part: use implementation='xla'")
            return splash_attention(q_BTHK, k_BTGK, v_BTGK, layout.segments_BT, mesh)
        case "xla":
            return _tiled(q_BTHK, k_BTGK, v_BTGK, prefix, layout)
    raise ValueError(f"attention {implementation!r} is unknown: use 'xla', 'cudnn' or 'splash'")


def _best(dtype: Any, prefix: PrefixKV | None) -> Implementation:
    platform = jax.default_backend()
    if platform in ("gpu", "cuda") and dtype in (jnp.float16, jnp.bfloat16):
        return "cudnn"
    return "splash" if platform == "tpu" and prefix is None else "xla"


def masked_attention(
    q_BTHK: jax.Array,
    k_BTGK: jax.Array,
    v_BTGK: jax.Array,
    layout: RowLayout,
    prefix: PrefixKV | None = None,
    *,
    implementation: Literal["cudnn", "xla"],
) -> jax.Array:
    """`row_attention` as one masked call of `jax.nn.dot_product_attention`."""
    segments_BT = layout.segments_BT
    length = segments_BT.shape[1]
    # Padding sees padding: a row of the mask without any entry gives NaN in some kernels.
    mask_BTS = segments_BT[:, :, None] == segments_BT[:, None]
    mask_BTS &= jnp.tril(jnp.ones((length, length), bool))
    if prefix is not None:
        rows = segments_BT.shape[0] // layout.prefix_segments_CP.shape[0]
        ids_BP = jnp.repeat(layout.prefix_segments_CP, rows, axis=0)
        seen_BTP = (layout.prefixes_BT[:, :, None] == ids_BP[:, None]) & (ids_BP[:, None] > 0)
        mask_BTS = jnp.concatenate([seen_BTP, mask_BTS], axis=2)
        k_BTGK, v_BTGK = (
            jnp.concatenate([jnp.repeat(shared, rows, axis=0), own], axis=1)
            for shared, own in zip(prefix, (k_BTGK, v_BTGK), strict=True)
        )
    return jax.nn.dot_product_attention(
        q_BTHK, k_BTGK, v_BTGK, mask=mask_BTS[:, None], implementation=implementation
    )


@jax.custom_vjp
def _tiled(q_BTHK, k_BTGK, v_BTGK, prefix, layout):
    return _tiled_forward(q_BTHK, k_BTGK, v_BTGK, prefix, layout)[0]


def _tiled_forward(q_BTHK, k_BTGK, v_BTGK, prefix, layout):
    """Both parts' outputs, weighted by their shares of the sum of exponentials."""
    parts = _parts(k_BTGK, v_BTGK, prefix, layout)
    results = [tiled.forward(_fold(_scaled(q_BTHK), k), k, v, seen) for k, v, seen in parts]
    shape = q_BTHK.shape
    outs = [_unfold(out, shape) for out, _ in results]
    lses = [_unfold(lse, shape[:3]) for _, lse in results]
    out_BTHK, lse_BTH = outs[0], lses[0]
    if prefix is not None:
        lse_BTH = jnp.logaddexp(*lses)
        own, shared = (jnp.exp(lse - lse_BTH)[..., None] for lse in lses)
        out_BTHK = own * outs[0] + shared * outs[1]
    # Names by which `remat` keeps them: all else is cheap to compute again.
    out_BTHK = checkpoint_name(out_BTHK.astype(q_BTHK.dtype), SAVED)
    lse_BTH = checkpoint_name(lse_BTH, SAVED)
    return out_BTHK, (q_BTHK, k_BTGK, v_BTGK, prefix, layout, out_BTHK, lse_BTH)


def _tiled_backward(saved, d_out_BTHK):
    q_BTHK, k_BTGK, v_BTGK, prefix, layout, out_BTHK, lse_BTH = saved
    delta_BTH = jnp.sum(out_BTHK.astype(jnp.float32) * d_out_BTHK.astype(jnp.float32), axis=-1)
    dq_BTHK, d_keys = 0.0, []
    for k_GBSK, v_GBSK, seen in _parts(k_BTGK, v_BTGK, prefix, layout):
        q, d_out, lse, delta = (
            _fold(x, k_GBSK) for x in (_scaled(q_BTHK), d_out_BTHK, lse_BTH, delta_BTH)
        )
        dq, dk, dv = tiled.backward(q, k_GBSK, v_GBSK, seen, lse, delta, d_out)
        dq_BTHK += _unfold(dq, q_BTHK.shape)
        like = (k_BTGK, v_BTGK) if not d_keys else prefix
        d_keys.append(
            tuple(
                d.transpose(1, 2, 0, 3)[:, : x.shape[1]].astype(x.dtype)
                for d, x in zip((dk, dv), like, strict=True)
            )
        )
    d_prefix = d_keys[1] if prefix is not None else None
    return _scaled(dq_BTHK).astype(q_BTHK.dtype), *d_keys[0], d_prefix, None


_tiled.defvjp(_tiled_forward, _tiled_backward)


def _parts(k_BTGK, v_BTGK, prefix, layout):
    """Keys and values with their tiles: the rows' own, then the prefixes' where there are any.

    Matrix dimensions last and whole tiles: any other order makes XLA copy them in every tile.
    """
    own = (k_BTGK, v_BTGK, layout.own)
    parts = [own] if prefix is None else [own, (*prefix, layout.prefix)]
    return [
        (*(tiled.pad_to_tiles(x.transpose(2, 0, 1, 3), 2) for x in key_value), seen)
        for *key_value, seen in parts
    ]


def _scaled(q_BTHK: jax.Array) -> jax.Array:
    return q_BTHK * np.asarray(1 / math.sqrt(q_BTHK.shape[-1]), q_BTHK.dtype)


def _fold(x_BTH: jax.Array, k_GCSK: jax.Array) -> jax.Array:
    """[B, T, H, ...] -> [G, C, R, B/C · T, ...] in whole tiles: queries beside their keys."""
    groups, rows = k_GCSK.shape[:2]
    heads, rest = x_BTH.shape[2], x_BTH.shape[3:]
    x_CLGR = x_BTH.reshape(rows, -1, groups, heads // groups, *rest)
    order = (2, 0, 3, 1, *range(4, x_CLGR.ndim))
    return tiled.pad_to_tiles(x_CLGR.transpose(order), 3)


def _unfold(x_GCRL: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The inverse of `_fold`, to [B, T, H, ...]."""
    used = math.prod(shape[:2]) // x_GCRL.shape[1]
    x_CLGR = x_GCRL[:, :, :, :used].transpose(1, 3, 0, 2, *range(4, x_GCRL.ndim))
    return x_CLGR.reshape(shape)
