"""A mixture of experts treats a shared prompt as it treats each trajectory's own."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jax_t2sql.learner import LoraSpec, Trajectory, cispo, make_learner, pack, pack_shared
from jax_t2sql.models import hidden_fn, prefix_fn, unembed_fn


def keep_gradient() -> optax.GradientTransformation:
    zeros = lambda tree: jax.tree.map(jnp.zeros_like, tree)  # noqa: E731
    return optax.GradientTransformation(zeros, lambda g, state, params: (zeros(g), g))


def group(seed, prompt_length, answer_length, size=3):
    rng = np.random.default_rng(seed)
    prompt = rng.integers(0, 320, prompt_length)
    made = []
    for _ in range(size):
        ids = np.concatenate([prompt, rng.integers(0, 320, answer_length)])
        sampled = np.arange(len(ids)) >= prompt_length
        made.append(Trajectory(ids, sampled, -rng.uniform(4, 7, len(ids)), rng.normal()))
    return made


def test_shared_prompts_change_neither_loss_nor_gradient(make_sparse, make_params):
    config = make_sparse("qwen3_moe")
    base, made = make_params(config), group(0, 20, 6) + group(1, 9, 4)
    learner = make_learner(
        hidden_fn(config),
        unembed_fn(config),
        prefix_fn=prefix_fn(config),
        adapter=LoraSpec(rank=2),
        loss=cispo(low=0.0, high=4.0),
        optimizer=keep_gradient(),
    )
    results = []
    for batch in (
        pack(made, row_length=28, rows_per_microbatch=3),
        pack_shared(made, prefix_length=20, row_length=16, rows_per_microbatch=3),
    ):
        state = learner.init(base, jax.random.key(0))
        bumped = jax.tree.map(lambda x: x + 0.05, state.trainable)
        state, metrics = learner.update(base, dataclasses.replace(state, trainable=bumped), batch)
        results.append((state.opt_state, metrics["loss"]))
    assert max(float(abs(x).max()) for x in jax.tree.leaves(results[0][0])) > 1e-3
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), *results)
