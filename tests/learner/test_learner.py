import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny_transformer as tiny

from jax_t2sql.learner import (
    FullSpec,
    LoraSpec,
    Trajectory,
    cispo,
    grpo,
    make_learner,
    make_optimizer,
    pack,
    sft,
    stop_if_stuck,
)

LENGTHS = (9, 3, 12, 5, 7, 12, 2, 6)
LORA = LoraSpec(targets=("layers", "lm_head"), rank=3, alpha=6)


def keep_gradient() -> optax.GradientTransformation:
    """An optimizer that changes nothing and whose state is the last gradient."""
    zeros = lambda tree: jax.tree.map(jnp.zeros_like, tree)  # noqa: E731
    return optax.GradientTransformation(zeros, lambda g, state, params: (zeros(g), g))


def learner_for(adapter=LORA, *, loss=None, optimizer=None, **options):
    return make_learner(
        tiny.hidden_fn,
        options.pop("unembed_fn", tiny.unembed_fn),
        adapter=adapter,
        loss=loss or cispo(low=0.2, high=3.0),
        optimizer=optimizer or keep_gradient(),
        **options,
    )


def start(learner, base):
    """A state whose adapter has been trained a little: with b = 0 half the gradient vanishes."""
    state = learner.init(base, jax.random.key(1))
    return dataclasses.replace(state, trainable=jax.tree.map(lambda x: x + 0.05, state.trainable))


def gradient_and_metrics(learner, base, batch, initial=None):
    state, metrics = learner.update(base, initial or start(learner, base), batch)
    return state.opt_state, metrics


def close(actual, expected, rtol=1e-4, atol=2e-6):
    def check(x, y):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)

    jax.tree.map(check, actual, expected)


def plain_gradient(adapter, loss, base, trainable, trajectories):
    """Σ loss / Σ mask by autodiff: a sequence a row, all logits at once, no code of the learner."""
    shape = len(trajectories), max(LENGTHS)
    tokens, sampled, sampler = np.zeros(shape, int), np.zeros(shape, bool), np.zeros(shape)
    for row, t in enumerate(trajectories):
        tokens[row, : len(t)], sampled[row, : len(t)] = t.ids_T, t.mask_T
        sampler[row, : len(t)] = np.where(t.mask_T, t.logprobs_T, 0.0)
    advantages = np.array([t.advantage for t in trajectories])[:, None]
    positions = np.broadcast_to(np.arange(shape[1]), shape)

    def total(trainable):
        model = adapter.bind(base, trainable)
        hidden = tiny.hidden_fn(*model, tokens, positions, np.ones_like(tokens))
        log_softmax = jax.nn.log_softmax(tiny.unembed_fn(*model, hidden[:, :-1]))
        logprobs = jnp.take_along_axis(log_softmax, tokens[:, 1:, None], axis=-1)[..., 0]
        losses, _ = loss(logprobs, sampler[:, 1:], advantages)
        return jnp.sum(losses * sampled[:, 1:]) / np.sum(sampled)

    return jax.jit(jax.value_and_grad(total))(trainable)


@pytest.fixture(scope="module")
def base():
    return tiny.init_base()


@pytest.fixture(scope="module")
def lora():
    return learner_for()


@pytest.fixture(scope="module")
def batch():
    return pack(tiny.trajectories(LENGTHS), row_length=16, rows_per_microbatch=2)


@pytest.mark.parametrize("adapter", [LORA, FullSpec()], ids=["lora", "full"])
def test_loss_and_gradient_equal_plain_autodiff_over_the_whole_batch(base, lora, batch, adapter):
    learner, made = lora if adapter is LORA else learner_for(adapter), tiny.trajectories(LENGTHS)
    loss, gradient = plain_gradient(
        adapter, cispo(low=0.2, high=3.0), base, start(learner, base).trainable, made
    )
    actual, metrics = gradient_and_metrics(learner, base, batch)
    close(actual, gradient)
    close(metrics["loss"], loss)
    close(metrics["grad_norm"], optax.tree.norm(gradient))
    assert metrics["tokens"] == sum(t.mask_T.sum() for t in made)


@pytest.mark.parametrize("layout", [dict(packed=False), dict(row_length=12), dict(rows=1)], ids=str)
def test_packing_and_micro_batches_change_neither_loss_nor_gradient(base, lora, batch, layout):
    rows = layout.pop("rows", 2)
    other = pack(
        tiny.trajectories(LENGTHS), **{"row_length": 16, **layout}, rows_per_microbatch=rows
    )
    assert other.tokens_MBT.shape != batch.tokens_MBT.shape
    (got, metrics), (want, want_metrics) = (
        gradient_and_metrics(lora, base, either) for either in (other, batch)
    )
    close(got, want, atol=1e-6)
    assert 0 <= metrics.pop("padding_share") < 1 and want_metrics.pop("padding_share")
    close(metrics, want_metrics)


def test_packed_log_probs_equal_unpacked_ones(base, lora):
    made = tiny.trajectories(LENGTHS)
    by_layout = []
    for packed in (True, False):
        batch = pack(made, row_length=16, rows_per_microbatch=2, packed=packed)
        logprobs_MBN = lora.logprobs(base, start(lora, base), batch)
        assert (logprobs_MBN[batch.mask_MBN == 0] == 0).all()
        # The sampler's log-probs are all different: they tell which token is which.
        keys = batch.sampler_logprobs_MBN[batch.mask_MBN == 1]
        by_layout.append(np.asarray(logprobs_MBN[batch.mask_MBN == 1])[np.argsort(keys)])
    np.testing.assert_allclose(*by_layout, atol=2e-6)
    assert np.std(by_layout[0]) > 0.1


def test_nothing_leaks_from_one_segment_into_another(base, lora):
    made = tiny.trajectories((6, 5, 5))
    batch = pack(made, row_length=16, rows_per_microbatch=1)
    state = start(lora, base)
    before = lora.logprobs(base, state, batch)
    changed = np.where(batch.segments_MBT == 2, (batch.tokens_MBT + 5) % tiny.VOCAB,
                       batch.tokens_MBT)  # fmt: skip
    after = lora.logprobs(base, state, dataclasses.replace(batch, tokens_MBT=changed))
    owner = np.take_along_axis(batch.segments_MBT, batch.scored_MBN, axis=-1)
    others = (batch.mask_MBN == 1) & (owner != 2)
    own = (batch.mask_MBN == 1) & (owner == 2)
    np.testing.assert_array_equal(np.asarray(before)[others], np.asarray(after)[others])
    assert np.abs(np.asarray(before - after)[own]).max() > 0.01


def test_chunks_of_slots_change_nothing(base, lora, batch, monkeypatch):
    expected = gradient_and_metrics(lora, base, batch)
    logprobs = lora.logprobs(base, start(lora, base), batch)
    monkeypatch.setattr("jax_t2sql.learner.logprobs._MIN_POSITIONS", 1)
    widths = []

    def unembed_fn(base, adapter, hidden_ND):
        widths.append(hidden_ND.shape[0])
        return tiny.unembed_fn(base, adapter, hidden_ND)

    chunked = learner_for(unembed_fn=unembed_fn, max_logits=10 * tiny.VOCAB)
    close(gradient_and_metrics(chunked, base, batch, start(lora, base)), expected)
    close(chunked.logprobs(base, start(lora, base), batch), logprobs)
    assert max(widths) == 10  # 5 slots of 2 rows; the 16 slots are no multiple of 5


def test_logits_of_all_tokens_never_exist(base):
    """The largest array of the compiled update is far below [tokens, vocabulary]."""
    vocab = 4096
    wide = {**base, "lm_head": {"kernel": jnp.ones((tiny.WIDTH, vocab))}}
    learner = learner_for(LoraSpec(rank=2), max_logits=vocab)
    batch = pack(tiny.trajectories((64,) * 8), row_length=64, rows_per_microbatch=8)
    state = learner.init(wide, jax.random.key(0))
    stats = learner.lower_update(wide, state, batch).compile().memory_analysis()
    assert stats.temp_size_in_bytes < 8 * 64 * vocab * 4


def test_the_gradient_is_linear_in_the_advantages(base, lora, batch):
    gradient, metrics = gradient_and_metrics(lora, base, batch)
    for factor in (0.0, -2.0):
        scaled = dataclasses.replace(batch, advantages_MBN=batch.advantages_MBN * factor)
        actual, scaled_metrics = gradient_and_metrics(lora, base, scaled)
        close(actual, jax.tree.map(lambda g, k=factor: g * k, gradient))
        assert scaled_metrics["tokens"] == metrics["tokens"]


def test_ratio_is_one_for_the_policys_own_log_probs(base, lora, batch):
    own = lora.logprobs(base, start(lora, base), batch)
    _, metrics = gradient_and_metrics(
        lora, base, dataclasses.replace(batch, sampler_logprobs_MBN=own)
    )
    close((metrics["ratio_mean"], metrics["ratio_max"]), (1.0, 1.0), rtol=1e-5)
    assert metrics["logprob_gap"] < 1e-6 and metrics["clip_fraction"] == 0


def test_metrics_average_over_sampled_tokens_only(base, lora, batch):
    logprobs = np.asarray(lora.logprobs(base, start(lora, base), batch))
    _, metrics = gradient_and_metrics(lora, base, batch)
    gap = (logprobs - batch.sampler_logprobs_MBN)[batch.mask_MBN == 1]
    ratio = np.exp(gap)
    close(metrics["logprob_gap"], np.abs(gap).mean())
    close(metrics["ratio_mean"], ratio.mean())
    close(metrics["ratio_max"], ratio.max())
    close(metrics["clip_fraction"], ((ratio < 0.2) | (ratio > 3.0)).mean())


def test_sft_learns_a_sequence_by_heart_and_leaves_the_base_alone(base):
    optimizer = make_optimizer(peak_lr=2e-2, warmup_steps=3, total_steps=80)
    learner = learner_for(FullSpec(), loss=sft(), optimizer=optimizer)
    lesson = Trajectory.supervised([1, 2, 3, 4, 5, 6], [0, 0, 1, 1, 1, 1])
    batch = pack([lesson], row_length=6, rows_per_microbatch=1)
    before = jax.tree.map(np.array, base)
    state = learner.init(base, jax.random.key(0))
    for _ in range(60):
        state, metrics = learner.update(base, state, batch)
    assert metrics["loss"] < 0.05
    assert not {"ratio_mean", "ess"} & set(metrics)
    jax.tree.map(np.testing.assert_array_equal, base, before)


def test_state_stays_float32_over_a_bfloat16_base(batch):
    base = tiny.init_base(dtype=jnp.bfloat16)
    optimizer = make_optimizer(peak_lr=1e-2, warmup_steps=0, total_steps=9)
    learner = learner_for(LoraSpec(rank=2), optimizer=optimizer)
    state = learner.init(base, jax.random.key(0))
    for _ in range(2):
        state, metrics = learner.update(base, state, batch)
    dtypes = {leaf.dtype for leaf in jax.tree.leaves((state.trainable, state.opt_state))}
    assert dtypes == {jnp.dtype("float32"), jnp.dtype("int32")}  # int32: optax's counters
    assert metrics["skipped"] == 0 and state.trainable["layers"]["mix"].b.any()


def test_an_update_without_a_finite_gradient_or_without_tokens_is_skipped(base, batch):
    optimizer = make_optimizer(peak_lr=1e-2, warmup_steps=0, total_steps=9)
    learner = learner_for(LoraSpec(rank=2), loss=grpo(), optimizer=optimizer)
    # A ratio of exp(200) overflows float32; grpo leaves it unbounded where the advantage is < 0.
    broken = dataclasses.replace(
        batch,
        sampler_logprobs_MBN=batch.sampler_logprobs_MBN - 200,
        advantages_MBN=-np.ones_like(batch.advantages_MBN),
    )
    empty = dataclasses.replace(batch, mask_MBN=np.zeros_like(batch.mask_MBN))
    state, metrics = learner.update(base, learner.init(base, jax.random.key(0)), batch)
    assert metrics["skipped"] == 0
    before = jax.tree.map(np.array, (state.trainable, state.opt_state))
    for count, (useless, tokens) in enumerate(((broken, batch.mask_MBN.sum()), (empty, 0)), 1):
        state, metrics = learner.update(base, state, useless)
        assert metrics["skipped"] == 1 and metrics["tokens"] == tokens
        assert metrics["skipped_in_a_row"] == count
        assert np.isfinite(metrics["grad_norm"]) == (useless is empty)
        jax.tree.map(np.testing.assert_array_equal, (state.trainable, state.opt_state), before)
    stop_if_stuck(metrics, limit=3)
    with pytest.raises(FloatingPointError, match=r"2 updates in a row were skipped \(limit 2\)"):
        stop_if_stuck(metrics, limit=2)
    state, metrics = learner.update(base, state, batch)
    assert metrics["skipped"] == 0 and np.isfinite(metrics["grad_norm"])
    assert state.step == 4 and metrics["skipped_in_a_row"] == 0


@pytest.mark.parametrize("normalize", ["sequences", 7.0])
def test_other_normalisations_weigh_each_sequence(base, normalize):
    made = tiny.trajectories(LENGTHS)
    batch = pack(made, row_length=16, rows_per_microbatch=2)
    learner = learner_for(loss=sft(), normalize=normalize)
    _, metrics = gradient_and_metrics(learner, base, batch)
    logprobs = np.asarray(learner.logprobs(base, start(learner, base), batch))[batch.mask_MBN == 1]
    # The sampler's log-probs are all different: they tell which token is which.
    logprob_of = dict(zip(batch.sampler_logprobs_MBN[batch.mask_MBN == 1], logprobs, strict=True))
    sums = [sum(logprob_of[x] for x in t.logprobs_T[t.mask_T]) for t in made]
    divisors = [t.mask_T.sum() if normalize == "sequences" else normalize for t in made]
    close(metrics["loss"], -np.mean(np.array(sums) / divisors))


def test_unknown_normalisations_are_refused():
    for wrong in ("token", 0, float("nan"), True):
        with pytest.raises(ValueError, match="normalize must be"):
            learner_for(normalize=wrong)


def test_groups_without_signal_can_be_left_out_of_the_average(base, lora):
    made = tiny.trajectories(LENGTHS)
    dull = [dataclasses.replace(t, advantage=0.0) for t in tiny.trajectories((5, 8), seed=1)]
    both = pack(made + dull, row_length=16, rows_per_microbatch=2)
    without = pack(made, row_length=16, rows_per_microbatch=2)
    learner = learner_for(drop_zero_signal=True)
    want, want_metrics = gradient_and_metrics(lora, base, without)
    got, metrics = gradient_and_metrics(learner, base, both)
    close(got, want)
    assert metrics["tokens"] == want_metrics["tokens"] < both.mask_MBN.sum()


def test_missing_log_probs_of_the_sampler_are_refused(base, lora, batch):
    state = start(lora, base)
    lesson = Trajectory.supervised([1, 2, 3], [0, 1, 1])
    with pytest.raises(ValueError, match="2 of 2 sampled tokens have no finite log-prob"):
        lora.update(base, state, pack([lesson], row_length=4, rows_per_microbatch=1))
    broken = np.where(np.arange(16) == 0, np.inf, batch.sampler_logprobs_MBN)
    with pytest.raises(ValueError, match=r"the first in micro-batch, row and slot \(0, 0, 0\)"):
        lora.update(base, state, dataclasses.replace(batch, sampler_logprobs_MBN=broken))


def test_mesh_options_without_a_mesh_are_refused(base):
    with pytest.raises(ValueError, match="pass a mesh"):
        learner_for(base_desc={})


def test_ratios_are_summed_by_source(base):
    """Against log-probs of a pass of its own; by micro-batch, packed row and shared prompt."""
    rng = np.random.default_rng(0)
    made = [
        dataclasses.replace(t, sources_T=rng.integers(0, 4, len(t)))
        for t in tiny.trajectories(LENGTHS)
    ]
    learner = learner_for(sources=5)
    for rows in (1, 2):
        batch = pack(made, row_length=16, rows_per_microbatch=rows)
        state = start(learner, base)
        logprobs_MBN = np.asarray(learner.logprobs(base, state, batch))
        log_ratio_MBN = logprobs_MBN - batch.sampler_logprobs_MBN
        gradient, metrics = gradient_and_metrics(learner, base, batch)
        for source in range(1, 6):
            of = (batch.sources_MBN == source) & (batch.mask_MBN > 0)
            found = [metrics[f"source_{n}"][source - 1] for n in ("tokens", "ratio", "log_ratio")]
            wanted = [of.sum(), np.exp(log_ratio_MBN[of]).sum(), log_ratio_MBN[of].sum()]
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
        assert (batch.sources_MBN[batch.mask_MBN > 0] == 0).any(), "some are measured with none"
        assert metrics["source_tokens"].sum() == (batch.sources_MBN > 0).sum() > 0
        plain = pack(tiny.trajectories(LENGTHS), row_length=16, rows_per_microbatch=rows)
        unmeasured, metrics = gradient_and_metrics(learner, base, plain)
        close(gradient, unmeasured)
        assert "source_tokens" not in metrics


def test_one_source_that_is_not_finite_leaves_the_others_alone(base):
    near, far = tiny.trajectories((6, 6))
    far = dataclasses.replace(far, logprobs_T=np.full(6, -1e4), sources_T=np.full(6, 1))
    near = dataclasses.replace(near, sources_T=np.full(6, 2))
    _, metrics = gradient_and_metrics(
        learner_for(sources=2), base, pack([near, far], row_length=16, rows_per_microbatch=1)
    )
    assert np.isinf(metrics["source_ratio"][0]) and np.isfinite(metrics["source_ratio"][1])


def test_sources_out_of_their_bounds_are_refused(base):
    (made,) = tiny.trajectories((6,))
    named = dataclasses.replace(made, sources_T=np.full(6, 3))
    learner = learner_for(sources=2)
    with pytest.raises(ValueError, match="names source 3, but make_learner got sources=2"):
        learner.update(base, start(learner, base), pack([named], row_length=8,
                                                        rows_per_microbatch=1))  # fmt: skip
    for wrong in (np.full(5, 1), np.full(6, -1)):
        with pytest.raises(ValueError, match="as many numbers of at least 0"):
            dataclasses.replace(made, sources_T=wrong)
    with pytest.raises(ValueError, match="sources must be at least 0, got -1"):
        learner_for(sources=-1)
