"""A mixture of experts treats a shared prompt as it treats each trajectory's own."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_t2sql.learner import LoraSpec, Trajectory, cispo, make_learner, pack, pack_shared
from jax_t2sql.models import hidden_fn, init_params, prefix_fn, unembed_fn


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


@pytest.mark.parametrize("architecture", ["qwen3_moe", "deepseek_v3", "glm4_moe"])
def test_shared_prompts_change_neither_loss_nor_gradient(architecture, make_sparse):
    """With initial weights, of a size that training meets.

    Weights ten times as large make softmax and routing so sharp that rounding alone moves the
    gradient by percents; in float64 both ways agree to 1e-14 there too.
    """
    config = make_sparse(architecture)
    base, made = init_params(config, jax.random.key(0)), group(0, 20, 6) + group(1, 9, 4)
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
