import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_t2sql.batching import BatchLimits, make_batch, rollout_limits
from jax_t2sql.config import LearnerConfig, RLConfig
from jax_t2sql.learner import LoraSpec, Trajectory, cispo, make_learner, make_optimizer
from jax_t2sql.text2sql import EpisodeConfig


def group(prompt_length, answer_length, size, seed=0):
    rng = np.random.default_rng(seed)
    prompt = rng.integers(0, 50, prompt_length)
    made = []
    for _ in range(size):
        length = int(answer_length if np.isscalar(answer_length) else rng.integers(*answer_length))
        ids = np.concatenate([prompt, rng.integers(0, 50, length)])
        sampled = np.arange(len(ids)) >= prompt_length
        made.append(Trajectory(ids, sampled, np.full(len(ids), -1.0), 1.0))
    return made


def run_of(prompts, answer, *, steps=50, groups=4, size=4, shards=1):
    """Batches of a run whose steps keep from one group to all of them, and the run's limits."""
    rng = np.random.default_rng(0)
    episode = EpisodeConfig(style="direct", max_tokens_per_turn=answer, max_context=8192)
    limits = rollout_limits(
        prompts, episode, RLConfig(groups=groups, group_size=size), shards=shards
    )
    for step in range(steps):
        made = []
        for number in range(int(rng.integers(1, groups + 1))):
            seed = 100 * step + number
            made += group(int(rng.choice(prompts)), (1, answer + 1), size, seed)
        yield [made[i] for i in rng.permutation(len(made))], limits


def shapes(batch):
    return jax.tree.map(lambda x: x.shape, batch)


def test_long_prompts_of_groups_are_computed_once():
    made = group(600, 40, 8) + group(500, 60, 8, seed=1)
    batch = make_batch(made, LearnerConfig())
    assert (batch.prefix.segments_KCP > 0).sum() == 599 + 499
    assert (batch.segments_MBT > 0).sum() == 8 * 41 + 8 * 61
    assert batch.mask_MBN.sum() == 8 * 40 + 8 * 60


def test_short_or_single_prompts_are_not_worth_rows_of_their_own():
    assert make_batch(group(40, 40, 8), LearnerConfig()).prefix is None
    assert make_batch(group(600, 40, 1), LearnerConfig()).prefix is None


@pytest.mark.parametrize(
    ("prompts", "answer", "shared"),
    [((9, 20, 47), 64, False), ((300, 700, 1400), 96, True), ((30, 60, 650), 400, False)],
)
@pytest.mark.parametrize("shards", [1, 4])
def test_all_batches_of_a_run_have_one_shape(prompts, answer, shared, shards):
    """So an update is compiled once, however many groups a step keeps and how long they are."""
    found = set()
    for made, limits in run_of(prompts, answer, shards=shards):
        batch = make_batch(made, LearnerConfig(), limits)
        assert (batch.prefix is not None) == shared
        assert batch.mask_MBN.sum() == sum(t.mask_T.sum() for t in made)
        assert batch.tokens_MBT.shape[1] % shards == 0
        found.add(str(shapes(batch)))
    assert len(found) <= (1 if max(prompts) + answer <= 1024 or shared else 2), found


def test_what_is_over_the_limits_is_trained_all_the_same():
    (made, limits), *_ = run_of((9, 20), 32, steps=1)
    longer = made + group(30, 500, 2, seed=9)
    batch = make_batch(longer, LearnerConfig(), limits)
    assert batch.mask_MBN.sum() == sum(t.mask_T.sum() for t in longer)
    many = [t for seed in range(40) for t in group(20, 32, 8, seed)]
    assert make_batch(many, LearnerConfig(), limits).mask_MBN.sum() == 40 * 8 * 32


def test_a_configured_row_is_kept_and_gives_way_to_longer_sequences():
    limits = BatchLimits.of(group(40, 40, 8))
    config = LearnerConfig(row_length=100, rows=3)
    assert make_batch(group(40, 40, 8), config, limits).tokens_MBT.shape[1:] == (3, 100)
    assert make_batch(group(90, 40, 8), config, limits).tokens_MBT.shape[2] >= 130


def test_nothing_is_compiled_after_the_second_update():
    """Counted by what JAX reports, in a run of varied lengths."""
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **_: compiled.append(name) if "backend_compile" in name else None
    )

    def hidden_fn(base, adapter, tokens_BT, positions_BT, segments_BT):
        pair = adapter["mix"]
        x_BTD = base["embed"]["embedding"][tokens_BT]
        return x_BTD @ base["mix"]["kernel"] + x_BTD @ pair.a @ pair.b

    keys = jax.random.split(jax.random.key(0))
    base = {
        "embed": {"embedding": jax.random.normal(keys[0], (50, 8))},
        "mix": {"kernel": jax.random.normal(keys[1], (8, 8))},
    }
    learner = make_learner(
        hidden_fn,
        lambda base, adapter, hidden_ND: hidden_ND @ base["embed"]["embedding"].T,
        adapter=LoraSpec(rank=2),
        loss=cispo(low=0.0, high=4.0),
        optimizer=make_optimizer(peak_lr=1e-3, warmup_steps=0, total_steps=100),
    )
    state, programs = learner.init(base, jax.random.key(1)), []
    for made, limits in run_of((9, 20, 47), 64):
        before = len(compiled)
        state, metrics = learner.update(base, state, make_batch(made, LearnerConfig(), limits))
        programs.append(len(compiled) - before)
    assert jnp.isfinite(metrics["loss"])
    assert programs[0] >= 1 and sum(programs[2:]) == 0, programs
