"""A two-layer causal transformer with segment mask, and trajectories to feed it.

Small enough to compile in seconds. It shares no code with what is tested but `lora_linear`.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jax_t2sql.learner import Trajectory, lora_linear

LAYERS, WIDTH, HEADS, VOCAB = 2, 16, 2, 23


def init_base(seed=0, dtype=jnp.float32):
    keys = iter(jax.random.split(jax.random.key(seed), 8))

    def normal(*shape):
        return (jax.random.normal(next(keys), shape) * shape[-2] ** -0.5).astype(dtype)

    return {
        "embed": {"embedding": 4 * normal(VOCAB, WIDTH)},
        "layers": {
            "qkv": {"kernel": normal(LAYERS, WIDTH, 3 * WIDTH)},
            "out": {"kernel": normal(LAYERS, WIDTH, WIDTH)},
            "mix": {"kernel": normal(LAYERS, WIDTH, WIDTH)},
            "norm": {"scale": jnp.ones((LAYERS, WIDTH), dtype)},
        },
        "lm_head": {"kernel": normal(WIDTH, VOCAB)},
    }


def hidden_fn(base, adapter, tokens_BT, positions_BT, segments_BT):
    B, T = tokens_BT.shape
    angles_BTF = positions_BT[..., None] * 0.5 ** jnp.arange(WIDTH // 2)
    x_BTD = base["embed"]["embedding"][tokens_BT]
    x_BTD += jnp.concatenate([jnp.sin(angles_BTF), jnp.cos(angles_BTF)], -1).astype(x_BTD.dtype)
    same_BTS = segments_BT[:, :, None] == segments_BT[:, None, :]
    mask_BTS = same_BTS & (segments_BT > 0)[:, None, :] & jnp.tril(jnp.ones((T, T), bool))

    def layer(x_BTD, modules):
        weights, pairs = modules

        def linear(name, x):
            return lora_linear(x, weights[name]["kernel"], pairs.get(name))

        h_BTD = x_BTD * weights["norm"]["scale"]
        q, k, v = jnp.split(linear("qkv", h_BTD).reshape(B, T, HEADS, -1), 3, axis=-1)
        scores_BHTS = jnp.einsum("bthk,bshk->bhts", q, k).astype(jnp.float32)
        scores_BHTS = jnp.where(mask_BTS[:, None], scores_BHTS, -1e9)
        mixed = jnp.einsum("bhts,bshk->bthk", jax.nn.softmax(scores_BHTS).astype(v.dtype), v)
        x_BTD += linear("out", mixed.reshape(B, T, WIDTH))
        return x_BTD + jnp.tanh(linear("mix", x_BTD)), None

    pairs = (adapter or {}).get("layers", {})
    x_BTD, _ = jax.lax.scan(layer, x_BTD, (base["layers"], pairs))
    return x_BTD


def unembed_fn(base, adapter, hidden_ND):
    return (hidden_ND @ base["lm_head"]["kernel"]).astype(jnp.float32)


def trajectories(lengths, seed=0):
    rng = np.random.default_rng(seed)
    made = []
    for length in lengths:
        mask_T = rng.random(length) < 0.6
        mask_T[0], mask_T[-1] = False, True
        logprobs_T = -rng.uniform(1.0, 5.0, length)
        made.append(Trajectory(rng.integers(0, VOCAB, length), mask_T, logprobs_T, rng.normal()))
    return made
