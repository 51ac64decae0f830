"""Which experts a token uses, and with what weights."""

from typing import Any

import jax
import jax.numpy as jnp

from jax_t2sql.models.shapes import MoEConfig


def route(
    moe: MoEConfig, router: dict[str, Any], x_ND: jax.Array, replay_NK: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Chooses K experts for each of N tokens: (experts_NK int32, weights_NK float32).

    Scores and weights are float32 whatever the model computes in: a near tie decides what runs.

    Args:
      replay_NK: experts recorded when the tokens were sampled. They are used in place of the best
        ones, with weights from the scores of now, which the gradient flows through; a token whose
        record holds a negative number chooses for itself.
    """
    logits_NE = jnp.matmul(
        x_ND.astype(jnp.float32),
        router["embedding"].astype(jnp.float32).T,
        precision=jax.lax.Precision.HIGHEST,
    )
    if moe.scoring == "softmax":
        scores_NE = jax.nn.softmax(logits_NE, axis=-1)
        ranking_NE = scores_NE
    else:
        scores_NE = jax.nn.sigmoid(logits_NE)
        ranking_NE = scores_NE + router["bias"].astype(jnp.float32)
    if moe.groups_used < moe.groups:
        ranking_NE = _only_best_groups(moe, ranking_NE)
    experts_NK = jax.lax.top_k(jax.lax.stop_gradient(ranking_NE), moe.experts_per_token)[1]
    if replay_NK is not None:
        recorded_N = jnp.all(replay_NK >= 0, axis=-1, keepdims=True)
        experts_NK = jnp.where(recorded_N, replay_NK, experts_NK)
    weights_NK = jnp.take_along_axis(scores_NE, experts_NK, axis=-1)
    if moe.normalize:
        weights_NK = weights_NK / (jnp.sum(weights_NK, axis=-1, keepdims=True) + 1e-20)
    return experts_NK, weights_NK * moe.scale


def _only_best_groups(moe: MoEConfig, ranking_NE: jax.Array) -> jax.Array:
    """The ranking with minus infinity outside the best groups, by the sum of their two best."""
    ranking_NGI = ranking_NE.reshape(-1, moe.groups, moe.num_experts // moe.groups)
    group_NG = jnp.sum(jax.lax.top_k(ranking_NGI, 2)[0], axis=-1)
    best_Nu = jax.lax.top_k(group_NG, moe.groups_used)[1]
    used_NG = jnp.any(best_Nu[:, :, None] == jnp.arange(moe.groups), axis=1)
    return jnp.where(used_NG[:, :, None], ranking_NGI, -jnp.inf).reshape(ranking_NE.shape)
