"""Prompts computed once for many trajectories, against every trajectory computed whole."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_learner import close, gradient_and_metrics, keep_gradient

from jax_t2sql.learner import (
    FullSpec,
    LoraSpec,
    Trajectory,
    cispo,
    make_learner,
    pack,
    pack_shared,
)
from jax_t2sql.models import ModelConfig, hidden_fn, init_params, prefix_fn, unembed_fn

VOCAB = 61
CONFIG = ModelConfig(
    architecture="qwen3",
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=48,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    qk_norm=True,
    tie_embeddings=True,
)
BASE = init_params(CONFIG, jax.random.key(0))


def groups(seed, *, prompts=4, longest_prompt=30, longest_answer=10):
    """Groups of one to five trajectories, each group with a prompt of its own."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(prompts):
        prompt = rng.integers(0, VOCAB, rng.integers(1, longest_prompt + 1))
        for _ in range(rng.integers(1, 6)):
            answer = rng.integers(0, VOCAB, rng.integers(1, longest_answer + 1))
            sampled = np.concatenate([np.zeros(len(prompt), bool), rng.random(len(answer)) < 0.7])
            sampled[len(prompt)] = True  # observations come later in a turn
            ids = np.concatenate([prompt, answer])
            made.append(Trajectory(ids, sampled, -rng.uniform(1, 5, len(ids)), rng.normal()))
    return made


def learner_for(adapter, **options):
    return make_learner(
        hidden_fn(CONFIG, **options),
        unembed_fn(CONFIG),
        prefix_fn=prefix_fn(CONFIG, **options),
        adapter=adapter,
        loss=cispo(low=0.2, high=3.0),
        optimizer=keep_gradient(),
    )


def start(learner):
    state = learner.init(BASE, jax.random.key(1))
    return dataclasses.replace(state, trainable=jax.tree.map(lambda x: x + 0.05, state.trainable))


def by_token(batch, values_MBN):
    """Values of the sampled tokens in an order that no layout changes."""
    used = batch.mask_MBN == 1
    return np.asarray(values_MBN)[used][np.argsort(batch.sampler_logprobs_MBN[used])]


LAYOUTS = [
    dict(prefix_length=30, row_length=16, rows_per_microbatch=2),
    dict(prefix_length=64, row_length=24, rows_per_microbatch=4, prefix_rows=2),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=["one prompt a row", "several"])
@pytest.mark.parametrize(
    "adapter, options",
    [(LoraSpec(rank=3, alpha=6), {}), (LoraSpec(rank=3), {"remat": "layer"}), (FullSpec(), {})],
    ids=["lora", "remat", "full"],
)
def test_shared_prompts_change_neither_loss_nor_gradient(adapter, options, layout):
    learner, made = learner_for(adapter, **options), groups(0)
    whole, shared = pack(made, row_length=48, rows_per_microbatch=2), pack_shared(made, **layout)
    want, want_metrics = gradient_and_metrics(learner, BASE, whole, start(learner))
    got, metrics = gradient_and_metrics(learner, BASE, shared, start(learner))
    close(got, want, rtol=1e-5, atol=1e-6)
    close(metrics["loss"], want_metrics["loss"], rtol=1e-5)
    assert metrics["tokens"] == want_metrics["tokens"]
    logprobs = (by_token(b, learner.logprobs(BASE, start(learner), b)) for b in (whole, shared))
    np.testing.assert_allclose(*logprobs, atol=1e-5)


def test_the_prompt_is_computed_once():
    """Arithmetic falls in step with the tokens, and what is left is what is counted as computed."""
    rng = np.random.default_rng(0)
    prompt = rng.integers(0, VOCAB, 128)
    made = [
        Trajectory(np.concatenate([prompt, rng.integers(0, VOCAB, 8)]), np.arange(136) >= 128,
                   np.full(136, -4.0), 1.0)
        for _ in range(8)
    ]  # fmt: skip
    batch = pack_shared(made, prefix_length=127, row_length=9, rows_per_microbatch=8)
    assert batch.prefix.tokens_KCP.shape == (1, 1, 127)
    assert (batch.segments_MBT > 0).sum() == 8 * 9
    learner = learner_for(LoraSpec(rank=2))
    _, metrics = gradient_and_metrics(learner, BASE, batch, start(learner))
    assert metrics["padding_share"] == 0.0 and metrics["tokens"] == 64


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    prefix_rows=st.integers(1, 3),
    rows=st.integers(1, 3),
    prefix_length=st.integers(29, 80),
    row_length=st.integers(11, 40),
)
def test_every_token_lands_once_and_knows_its_prompt(
    seed, prefix_rows, rows, prefix_length, row_length
):
    made = groups(seed)
    batch = pack_shared(
        made,
        prefix_length=prefix_length,
        row_length=row_length,
        rows_per_microbatch=rows * prefix_rows,
        prefix_rows=prefix_rows,
    )
    K, C, _ = batch.prefix.tokens_KCP.shape
    M, B, _ = batch.tokens_MBT.shape
    assert rows * C == B and batch.prefix.stop_KC.max() <= M
    assert (batch.prefix.stop_KC == batch.prefix.stop_KC[:, :1]).all()
    found = []
    for m, b in np.ndindex(M, B):
        # Micro-batches after the last block are empty.
        k = min(np.searchsorted(batch.prefix.stop_KC[:, 0], m, side="right"), K - 1)
        above = tuple(x[k, b // rows] for x in (
            batch.prefix.tokens_KCP, batch.prefix.positions_KCP, batch.prefix.segments_KCP
        ))  # fmt: skip
        segments, prefixes = batch.segments_MBT[m, b], batch.prefix.prefixes_MBT[m, b]
        for segment in range(1, segments.max() + 1):
            own = segments == segment
            (prefix,) = set(prefixes[own])
            seen = (above[2] == prefix) & (prefix > 0)
            ids = np.concatenate([above[0][seen], batch.tokens_MBT[m, b][own]])
            positions = np.concatenate([above[1][seen], batch.positions_MBT[m, b][own]])
            np.testing.assert_array_equal(positions, np.arange(len(ids)))
            slots = (batch.mask_MBN[m, b] == 1) & own[batch.scored_MBN[m, b]]
            at = batch.positions_MBT[m, b][batch.scored_MBN[m, b][slots]] + 1
            np.testing.assert_array_equal(ids[at], batch.targets_MBN[m, b][slots])
            found.append((*ids, -1, *at, *batch.sampler_logprobs_MBN[m, b][slots]))
    want = [(*t.ids_T, -1, *np.flatnonzero(t.mask_T), *t.logprobs_T[t.mask_T]) for t in made]
    assert sorted(found) == sorted(want)


def test_what_does_not_fit_is_refused():
    made = groups(0, prompts=1)
    sizes = dict(prefix_length=64, row_length=64, rows_per_microbatch=2)
    with pytest.raises(ValueError, match="the prompt of trajectory 0 takes .* prefix_length=3"):
        pack_shared(made, **sizes | {"prefix_length": 3})
    with pytest.raises(ValueError, match="the continuation of trajectory .* row_length=1"):
        pack_shared(made, **sizes | {"row_length": 1})
    with pytest.raises(ValueError, match="rows_per_microbatch=2 .* multiple of prefix_rows=4"):
        pack_shared(made, **sizes, prefix_rows=4)
    with pytest.raises(ValueError, match="nothing to pack"):
        pack_shared([], **sizes)
    learner = make_learner(
        hidden_fn(CONFIG), unembed_fn(CONFIG), adapter=LoraSpec(rank=2), loss=cispo(),
        optimizer=keep_gradient(),
    )  # fmt: skip
    state = learner.init(BASE, jax.random.key(0))
    with pytest.raises(ValueError, match="got no prefix_fn"):
        learner.update(BASE, state, pack_shared(made, **sizes))
    assert jnp.isfinite(state.step)
