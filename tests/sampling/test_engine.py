"""The in-process sampler: exact log-probs, seeds, stops, shared prompts, few compilations."""

import dataclasses

import jax
import numpy as np
import pytest

from jax_t2sql.learner import LoraSpec, Trajectory, make_learner, make_optimizer, pack, sft
from jax_t2sql.models import ModelConfig, hidden_fn, init_params, routing_fn, unembed_fn
from jax_t2sql.models.shapes import MoEConfig
from jax_t2sql.sampling.buckets import bucket
from jax_t2sql.sampling.engine import Engine
from jax_t2sql.sampling.policy import SampleRequest

CONFIG = ModelConfig(
    architecture="qwen3",
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    tie_embeddings=True,
    qk_norm=True,
    max_position_embeddings=256,
)
STOP = 63


def text(ids):
    """Every id is one letter, so that stop strings can be counted in tokens."""
    return "".join(chr(ord("0") + i) for i in ids)


@pytest.fixture(scope="module")
def params():
    # Large enough weights for a peaked, varied distribution.
    return jax.tree.map(lambda x: 3 * x, init_params(CONFIG, jax.random.key(0)))


@pytest.fixture(scope="module")
def engine(params):
    return Engine(CONFIG, params, stop_ids=(STOP,), decode=text, chunk=4)


@pytest.fixture(scope="module")
def make_sparse_model():
    moe = MoEConfig(num_experts=8, experts_per_token=2, expert_size=16, dense_layers=1)
    config = dataclasses.replace(CONFIG, architecture="qwen3_moe", num_layers=3, moe=moe)
    return config, jax.tree.map(lambda x: 3 * x, init_params(config, jax.random.key(0)))


def prompt(seed, length):
    return tuple(int(i) for i in np.random.default_rng(seed).integers(0, 62, length))


def requests(count=12, **changes):
    """Four groups of three over prompts of different lengths."""
    base = [
        SampleRequest(prompt_ids=prompt(i // 3, 5 + 4 * (i // 3)), seed=i, max_tokens=12)
        for i in range(count)
    ]
    return [dataclasses.replace(request, **changes) for request in base]


def scored_by_learner(params, adapter, wanted, completions):
    """Log-probs of the sampled ids as the learner computes them, packed; rows of one sequence."""
    spec = LoraSpec(rank=4, alpha=8)
    learner = make_learner(
        hidden_fn(CONFIG),
        unembed_fn(CONFIG),
        adapter=spec,
        loss=sft(),
        optimizer=make_optimizer(peak_lr=1e-3, warmup_steps=0, total_steps=10),
    )
    found = []
    for request, completion in zip(wanted, completions, strict=True):
        ids = np.array(request.prompt_ids + completion.ids)
        mask = np.arange(len(ids)) >= len(request.prompt_ids)
        batch = pack([Trajectory.supervised(ids, mask)], row_length=64, rows_per_microbatch=1)
        found.append(
            np.asarray(learner.logprobs(params, adapter, batch))[0, 0, : len(completion.ids)]
        )
    return found


def trained_adapter(params):
    """An adapter whose B is not zero."""
    adapter = LoraSpec(rank=4, alpha=8).init(params, jax.random.key(1))
    return jax.tree.map(lambda x: x + 0.3 * jax.random.normal(jax.random.key(2), x.shape), adapter)


def test_logprobs_are_the_learners(params):
    adapter = trained_adapter(params)
    engine = Engine(CONFIG, params, adapter, stop_ids=(STOP,), decode=text)
    wanted = requests()
    completions = engine.generate(wanted)
    gaps = [
        np.abs(np.array(completion.logprobs) - scored)
        for completion, scored in zip(
            completions, scored_by_learner(params, adapter, wanted, completions), strict=True
        )
    ]
    assert np.concatenate(gaps).mean() <= 1e-5
    assert np.concatenate(gaps).max() <= 1e-4


def test_a_rollout_does_not_depend_on_its_batch(engine):
    together = engine.generate(requests())
    alone = [engine.generate([request])[0] for request in requests()]
    assert [c.ids for c in together] == [c.ids for c in alone]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)


def test_seeds_decide_and_group_members_differ(engine):
    first, again = engine.generate(requests()), engine.generate(requests())
    assert [c.ids for c in first] == [c.ids for c in again]
    assert len({c.ids for c in first[:3]}) == 3


def test_sampling_follows_the_distribution(engine, params):
    """First tokens of 2,048 samples of one prompt against the model's own probabilities."""
    start = prompt(9, 7)
    count = 2048
    engine = Engine(CONFIG, params, stop_ids=(STOP,), decode=text, max_rows=count)
    completions = engine.generate(
        [SampleRequest(prompt_ids=start, seed=i, max_tokens=1) for i in range(count)]
    )
    ids = np.array([start])
    hidden = hidden_fn(CONFIG)(params, None, ids, np.arange(7)[None], np.ones((1, 7), int))
    probabilities_V = np.asarray(jax.nn.softmax(unembed_fn(CONFIG)(params, None, hidden[0, -1])))
    counts_V = np.bincount([c.ids[0] for c in completions], minlength=CONFIG.vocab_size)
    expected_V = probabilities_V * count
    common_V = expected_V >= 5
    statistic = ((counts_V - expected_V)[common_V] ** 2 / expected_V[common_V]).sum()
    # chi² with k degrees has mean k and deviation sqrt(2k); six deviations never happen by luck.
    degrees = common_V.sum()
    assert statistic < degrees + 6 * np.sqrt(2 * degrees)


def test_greedy_is_the_argmax_and_reports_the_models_logprob(engine, params):
    wanted = requests(temperature=0.0)
    completions = engine.generate(wanted)
    scored = scored_by_learner(
        params, LoraSpec(rank=4, alpha=8).init(params, jax.random.key(1)), wanted, completions
    )
    for completion, expected in zip(completions, scored, strict=True):
        np.testing.assert_allclose(completion.logprobs, expected, atol=1e-4)
    request, completion = wanted[0], completions[0]
    ids = np.array([request.prompt_ids + completion.ids])
    positions = np.arange(ids.shape[1])[None]
    hidden = hidden_fn(CONFIG)(params, None, ids, positions, np.ones_like(ids))
    best = np.asarray(unembed_fn(CONFIG)(params, None, hidden[0])).argmax(-1)
    assert tuple(best[len(request.prompt_ids) - 1 : -1]) == completion.ids


def test_temperature_logprobs_are_of_the_distribution_sampled_from(engine):
    hot = engine.generate(requests(temperature=1.7))
    ids = np.array([requests()[0].prompt_ids + hot[0].ids])
    hidden = hidden_fn(CONFIG)(
        engine._base, None, ids, np.arange(ids.shape[1])[None], np.ones_like(ids)
    )
    logits = np.asarray(unembed_fn(CONFIG)(engine._base, None, hidden[0]))[4:-1] / 1.7
    expected = np.asarray(jax.nn.log_softmax(logits))[np.arange(len(hot[0].ids)), hot[0].ids]
    np.testing.assert_allclose(hot[0].logprobs, expected, atol=1e-4)


def test_stop_causes(params):
    """The stop token is kept as the last id; without one the limit ends the completion."""
    greedy = Engine(CONFIG, params, stop_ids=(STOP,), decode=text)
    free = greedy.generate(
        [SampleRequest(prompt_ids=prompt(3, 9), seed=0, max_tokens=12, temperature=0.0)]
    )[0]
    assert (free.stop, len(free.ids)) == ("length", 12)
    third = free.ids[2]
    stopping = Engine(CONFIG, params, stop_ids=(third,), decode=text)
    cut = stopping.generate(
        [SampleRequest(prompt_ids=prompt(3, 9), seed=0, max_tokens=12, temperature=0.0)]
    )[0]
    end = free.ids.index(third) + 1
    assert (cut.stop, cut.ids) == ("stop_token", free.ids[:end])


def test_stop_strings_end_with_the_token_that_completes_them(engine):
    request = SampleRequest(prompt_ids=prompt(3, 9), seed=0, max_tokens=12, temperature=0.0)
    free = engine.generate([request])[0]
    wanted = text(free.ids[4:7])
    cut = engine.generate([request], stop_strings=("no such text", wanted))[0]
    end = text(free.ids).index(wanted) + len(wanted)
    assert (cut.stop, cut.ids) == ("stop_string", free.ids[:end])
    np.testing.assert_allclose(cut.logprobs, free.logprobs[:end], atol=1e-5)


def test_weights_swap_without_compiling(params):
    engine = Engine(CONFIG, params, trained_adapter(params), stop_ids=(STOP,), decode=text)
    before = engine.generate(requests())
    programs = engine.compilations
    other = jax.tree.map(lambda x: 1.5 * x, trained_adapter(params))
    engine.set_weights(params, other, version=7)
    after = engine.generate(requests())
    assert engine.compilations == programs
    assert {c.version for c in before} == {0} and {c.version for c in after} == {7}
    assert [c.ids for c in before] != [c.ids for c in after]
    engine.set_weights(params, trained_adapter(params), version=8)
    assert [c.ids for c in engine.generate(requests())] == [c.ids for c in before]


def test_compilations_are_bounded_by_buckets(params):
    """Thirty batches of all sizes and lengths need a handful of programs."""
    engine = Engine(CONFIG, params, stop_ids=(STOP,), decode=text, max_rows=4)
    rng = np.random.default_rng(0)
    for trial in range(30):
        count, longest = int(rng.integers(1, 5)), int(rng.integers(1, 60))
        engine.generate(
            [
                SampleRequest(
                    prompt_ids=prompt(trial * 10 + i, int(rng.integers(1, longest + 1))),
                    seed=i,
                    max_tokens=int(rng.integers(1, 32)),
                )
                for i in range(count)
            ]
        )
    widths, rows = 3, 4  # of prompts: 32, 48, 64 tokens; of batches: 1, 2, 3, 4 rows
    prefill, decode = widths * rows, widths * rows
    spread = widths * rows * (rows + 1) // 2  # at most as many prompts as rows
    assert engine.compilations <= prefill + decode + spread


def test_a_group_prefills_its_prompt_once(engine, monkeypatch):
    seen = []
    prefill = engine._programs["prefill"]

    def record(base, adapter, tokens_PT, positions_PT, valid_PT):
        seen.append(int(valid_PT.any(axis=1).sum()))
        return prefill(base, adapter, tokens_PT, positions_PT, valid_PT)

    monkeypatch.setitem(engine._programs, "prefill", record)
    engine.generate(requests())
    assert seen == [4]


def test_rows_that_are_done_are_left_out_and_change_nothing(params, monkeypatch):
    """Of 40 rows 35 end at once; the batch goes on with fewer, and each row samples the same."""
    wanted = [
        dataclasses.replace(request, max_tokens=4 if i % 8 else 30)
        for i, request in enumerate(requests(40))
    ]
    results, rows = [], []
    for fewest in (8, 1000):
        monkeypatch.setattr("jax_t2sql.sampling.engine._FEWEST_ROWS", fewest)
        engine = Engine(CONFIG, params, stop_ids=(STOP,), decode=text, chunk=4)
        decode, seen = engine._programs["decode"], []

        def record(base, adapter, *, state, decode=decode, seen=seen):
            seen.append(state.done_B.shape[0])
            return decode(base, adapter, state=state)

        monkeypatch.setitem(engine._programs, "decode", record)
        results.append(engine.generate(wanted, stop_strings=("00",)))
        rows.append(seen)
    assert set(rows[0]) == {48, 12} and set(rows[1]) == {48}
    fewer, all_rows = results
    assert [(c.ids, c.stop) for c in fewer] == [(c.ids, c.stop) for c in all_rows]
    for one, other in zip(fewer, all_rows, strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=2e-5)


def test_recorded_experts_are_those_of_the_whole_sequence(make_sparse_model):
    """One dense and two sparse layers; every token read has its experts, however it was read."""
    config, base = make_sparse_model
    engine = Engine(config, base, stop_ids=(STOP,), decode=text, chunk=4, record_experts=True)
    wanted = requests()
    route = jax.jit(routing_fn(config))
    for request, completion in zip(wanted, engine.generate(wanted), strict=True):
        ids = np.zeros((1, 40), np.int32)
        sequence = request.prompt_ids + completion.ids
        ids[0, : len(sequence)] = sequence
        real = (np.arange(40) < len(sequence)).astype(np.int32)[None]
        experts_LBTE = np.asarray(route(base, None, ids, np.arange(40)[None], real))
        record = completion.experts
        found = np.frombuffer(record.data, "<u2").reshape(-1, record.layers, record.chosen)
        assert len(record) == len(found) == len(sequence)
        np.testing.assert_array_equal(
            np.sort(found, -1), np.sort(experts_LBTE[:, 0, : len(sequence)].swapaxes(0, 1), -1)
        )


def test_limits_are_checked(engine):
    with pytest.raises(ValueError, match="250 tokens and 12 new ones need 262 positions"):
        engine.generate([SampleRequest(prompt_ids=prompt(0, 250), seed=0, max_tokens=12)])
    with pytest.raises(ValueError, match="prompt_ids is empty"):
        SampleRequest(prompt_ids=(), seed=0, max_tokens=1)
    with pytest.raises(ValueError, match="max_tokens is 0"):
        SampleRequest(prompt_ids=(1,), seed=0, max_tokens=0)


@pytest.mark.parametrize("smallest", [1, 32])
def test_buckets_cover_and_are_few(smallest):
    sizes = [bucket(n, smallest=smallest) for n in range(1, 2000)]
    assert all(size >= n for n, size in enumerate(sizes, start=1))
    assert all(size < 2 * n for n, size in enumerate(sizes, start=1) if n > smallest)
    assert len(set(sizes)) <= 23
    with pytest.raises(ValueError, match="over the largest bucket"):
        bucket(9, largest=8)
