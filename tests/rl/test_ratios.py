"""Samplers that compute other log-probs than the learner: found, named, and trained on no more."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_t2sql.bus import (
    Bounds,
    Contract,
    NewTask,
    Publish,
    Rollout,
    SamplerBus,
    open_store,
    start_or_takeover,
)
from jax_t2sql.bus.audit import audit
from jax_t2sql.config import DataConfig, LearnerConfig, RLConfig, SamplerConfig, TrainConfig
from jax_t2sql.config_loading import resolve
from jax_t2sql.errors import UserError
from jax_t2sql.learner import (
    LoraSpec,
    Trajectory,
    cispo,
    lora_linear,
    make_learner,
    make_optimizer,
    pack,
)
from jax_t2sql.rl import Feed, Hooks, Loop, restore, train
from jax_t2sql.rl.agreement import Agreement, agreements, describe, tolerance_of
from jax_t2sql.rl.ratios import RatioWatch

CONTRACT = Contract(
    config="c", code="d", base_model="m", tokenizer="t", prompt="p", grader="g", data="x"
)
VOCAB, LENGTH, STEPS = 16, 12, 3
CONFIG = TrainConfig(
    rl=RLConfig(steps=STEPS, groups=2, group_size=2, max_staleness=1),
    sampler=SamplerConfig(ratio_tokens=4),
)


def test_means_are_made_of_sums_and_leave_the_metrics():
    sums = {"tokens": [4.0, 0.0, 2.0], "ratio": [4.0, 0.0, 3.0], "log_ratio": [0.0, 0.0, -1.0]}
    metrics = {f"source_{name}": np.array(values) for name, values in sums.items()}
    found = agreements(metrics | {"loss": 1.0}, ["a", "b", "c"])
    assert found == {"a": Agreement(4, 1.0, 0.0), "c": Agreement(2, 1.5, -0.5)}
    assert agreements({"loss": 1.0}, ["a"]) == {}
    left = dict(metrics, loss=1.0)
    agreements(left, ["a"])
    assert left == {"loss": 1.0}


@pytest.mark.parametrize(
    ("ratio", "log_ratio", "within"),
    [
        (1.0005, -0.0005, True),
        (1.002, 0.0, False),
        (1.0, -0.002, False),
        (float("nan"), 0.0, False),
        (float("inf"), 0.0, False),
    ],
)
def test_both_means_must_be_right(ratio, log_ratio, within):
    assert Agreement(9, ratio, log_ratio).within(0.001) is within


@pytest.mark.parametrize(
    ("ratio", "log_ratio", "cause"),
    [
        (1.004, -0.001, "another precision"),
        (0.99, -0.3, "other weights or another temperature"),
        (1.6, 0.4, "processed_logprobs"),
    ],
)
def test_the_numbers_tell_what_to_look_for(ratio, log_ratio, cause):
    text = describe(Agreement(123, ratio, log_ratio), 0.001)
    assert cause in text and "123 tokens" in text and f"{ratio:.4g}" in text


def test_the_tolerance_follows_the_precision():
    def tolerance(sampler=None, **learner):
        sections = {"learner": LearnerConfig(**learner), "sampler": SamplerConfig()}
        if sampler is not None:
            sections["sampler"] = SamplerConfig(ratio_tolerance=sampler)
        return tolerance_of(dataclasses.replace(CONFIG, **sections))

    assert tolerance() < tolerance(dtype="bfloat16") == tolerance(bits=4)
    assert tolerance(0.2, dtype="bfloat16") == 0.2


@pytest.mark.parametrize(
    "wrong", [{"ratio_tolerance": 0.0}, {"ratio_tokens": 0}, {"quarantine": -1}]
)
def test_bounds_are_checked(wrong):
    (name,) = wrong
    config = TrainConfig(data=DataConfig(), sampler=SamplerConfig(**wrong))
    with pytest.raises(UserError, match=f"--sampler.{name.replace('_', '-')} is"):
        resolve(config)


def hidden_fn(base, adapter, tokens_BT, positions_BT, segments_BT):
    x_BTD = base["embed"]["embedding"][tokens_BT]
    return jnp.tanh(lora_linear(x_BTD, base["mix"]["kernel"], adapter["mix"]))


def unembed_fn(base, adapter, hidden_ND):
    return hidden_ND @ base["embed"]["embedding"].T


@pytest.fixture(scope="module")
def model():
    base = {
        "embed": {"embedding": jax.random.normal(jax.random.key(0), (VOCAB, 8))},
        "mix": {"kernel": jnp.eye(8)},
    }
    learner = make_learner(
        hidden_fn,
        unembed_fn,
        adapter=LoraSpec(targets="all-linear", rank=2, alpha=2),
        loss=cispo(low=0.0, high=4.0),
        optimizer=make_optimizer(peak_lr=0.1, warmup_steps=0, total_steps=STEPS),
        sources=CONFIG.rl.groups,
    )
    return base, learner


class Samplers:
    """Samplers that know the learner's log-probs, each off by what `shifts` says.

    Each delivers one group at a look; one that is off also claims a second and keeps it, until it
    reads that it is quarantined.
    """

    def __init__(self, store, shifts):
        self.ends = {n: SamplerBus(store, sampler=n, contract=CONTRACT) for n in shifts}
        self.shifts, self.kept, self.rng, self.looks = shifts, [], np.random.default_rng(0), 0

    def room(self, loop):
        return loop.bus.capacity

    def work(self, loop):
        self.looks += 1
        assert self.looks < 50, "the loop does not come to its end"
        loop.bus.expire_claims(still_seconds=1e9, clock=lambda: 0.0)
        for name, end in self.ends.items():
            end.heartbeat()
            end.refresh()
            tasks = end.claim(2 if self.shifts[name] and not self.kept else 1)
            self.kept += tasks[1:]
            groups = [self.group(loop, end, task, self.shifts[name]) for task in tasks[:1]]
            end.put_groups(groups)
        return []

    def group(self, loop, end, task, shift):
        made = []
        for member in range(task.group_size):
            ids = self.rng.integers(0, VOCAB, LENGTH)
            mask = np.arange(LENGTH) >= 2
            batch = pack([Trajectory(ids, mask, np.zeros(LENGTH))], row_length=LENGTH,
                         rows_per_microbatch=1)  # fmt: skip
            right = np.asarray(loop.learner.logprobs(loop.base, loop.state, batch))[0, 0]
            logprobs = np.zeros(LENGTH)
            logprobs[mask] = np.minimum(right[: mask.sum()] - shift, 0.0)
            made.append(
                Rollout.make(
                    ids,
                    mask_T=mask,
                    logprobs_T=logprobs,
                    versions_T=np.full(LENGTH, end.version),
                    reward=float(member),
                    terms={},
                    ending="answered",
                )
            )
        return end.make_group(task, made)

    def choose(self, loop, ready):
        return ready[:2] if len(ready) >= 2 else []

    def files_due(self, loop):
        return False

    def serve(self, loop):
        pass

    def metrics(self, loop, batch):
        return {}


class Questions:
    """A `TaskSource` that always asks the same."""

    def draw(self, count, *, first_seq):
        return [NewTask(problem="q", group_size=2, seed=n) for n in range(count)]

    def state(self):
        return {}

    def restore(self, state):
        pass


@pytest.fixture
def run(model, tmp_path):
    """A loop that trains on samplers of these shifts; gives it, its store, and what was said."""
    base, learner = model

    def go(shifts, *, quarantine=1, workers=2):
        store = open_store(tmp_path / "bus")
        sampler = dataclasses.replace(CONFIG.sampler, quarantine=quarantine)
        fleet = dataclasses.replace(CONFIG.fleet, workers=workers)
        said, steps, ratios = [], [], RatioWatch()
        bounds = Bounds(vocab_size=VOCAB, groups_per_batch=2, max_staleness=1)
        bus = start_or_takeover(store, run="r", contract=CONTRACT, bounds=bounds, learner="l")
        loop = Loop(
            run=SimpleNamespace(
                config=dataclasses.replace(resolve(CONFIG), sampler=sampler, fleet=fleet),
                batch_limits=None,
                workdir=tmp_path,
                model=SimpleNamespace(params=base),
            ),
            learner=learner,
            spec=None,
            state=learner.init(base, jax.random.key(1)),
            checkpointer=SimpleNamespace(latest=lambda: None, save=lambda *_: None),
            export=lambda state, folder: (folder / "weights").write_bytes(b"w"),
            say=said.append,
            bus=bus,
            feed=Feed(Questions()),
            sampling=Samplers(store, shifts),
            hooks=Hooks(
                after_step=[ratios.step, lambda _, step: steps.append(step)],
                after_publish=[ratios.published],
            ),
        )
        restore(loop)
        return SimpleNamespace(loop=loop, store=store, said=said, steps=steps)

    return go


def publishes(store_run):
    return [e for e in store_run.loop.bus.log.entries if isinstance(e, Publish)]


def test_samplers_that_agree_train_to_the_end(run):
    made = run({"a": 0.0, "b": 0.0})
    train(made.loop)
    assert made.loop.version == STEPS and made.said == []
    assert not made.loop.bus.state.quarantined and audit(made.store).faults == []
    first = made.steps[0]
    assert set(first.agreement) == {"a", "b"}
    assert first.metrics["ratio_on_policy"] == pytest.approx(1, abs=1e-5)
    assert first.metrics["ratio_deviation"] < 1e-5
    assert {found.tokens for found in first.agreement.values()} == {2 * (LENGTH - 2)}


def test_a_deviant_beside_a_good_one_is_quarantined(run):
    made = run({"good": 0.0, "bad": 0.2})
    train(made.loop)
    bus, samplers = made.loop.bus, made.loop.sampling
    assert made.loop.version == STEPS
    (entry,) = [e for e in publishes(made) if e.quarantined]
    assert entry.step == 1 and [q.sampler for q in entry.quarantined] == ["bad"]
    found = made.steps[0].agreement
    assert found["bad"].log_ratio == pytest.approx(0.2, abs=0.02)
    assert abs(found["good"].ratio - 1) < 1e-5
    assert made.steps[0].metrics["ratio_deviation"] > 0.15
    (said,) = [line for line in made.said if "quarantined" in line]
    assert "at step 1: sampler bad" in said and "update of this step was made with" in said
    assert all({g.sampler for g in step.trained} == {"good"} for step in made.steps[1:])
    assert samplers.ends["bad"].quarantined and samplers.ends["good"].quarantined is None
    (kept,) = samplers.kept
    (again,) = [
        task
        for e in bus.log.entries
        for task in getattr(e, "tasks", ())
        if task.seq == kept.seq and task.attempt
    ]
    assert again.attempt == 1, "what it held is offered to others"
    late = [d for e in bus.log.entries for d in getattr(e, "fates", ()) if d.fate == "invalid"]
    assert all(d.sampler == "bad" and "quarantined by entry" in d.reason for d in late)
    report = audit(made.store)
    assert report.faults == [] and report.counts["quarantined"] == 1


@pytest.mark.parametrize(
    ("shifts", "quarantine", "why"),
    [
        ({"a": 0.2, "b": 0.2}, 1, "no sampler is at work that does not deviate"),
        ({"a": 0.2}, 1, "no sampler is at work that does not deviate"),
        ({"a": 0.0, "b": 0.2}, 0, "more than --sampler.quarantine 0"),
    ],
)
def test_several_or_the_only_one_stop_the_run(run, shifts, quarantine, why):
    """The step is concluded: the same command goes on from there, and judges again."""
    made = run(shifts, quarantine=quarantine)
    with pytest.raises(UserError, match=why) as error:
        train(made.loop)
    bus = made.loop.bus
    assert bus.state.version == 1 and bus.state.open_batch is None
    assert audit(made.store).faults == []
    assert bus.state.quarantined.keys() == {name for name, shift in shifts.items() if shift}
    assert "stopped after step 1" in str(error.value) and "1.2" in str(error.value)
    assert "start them under another --name" in str(error.value)


def test_the_sampler_inside_the_learner_is_not_quarantined(run):
    made = run({"a": 0.2}, workers=0)
    with pytest.raises(UserError, match="no sampler is at work that does not deviate"):
        train(made.loop)
    assert not made.loop.bus.state.quarantined


def test_too_few_tokens_and_replays_prove_nothing(run):
    made = run({"a": 0.0, "b": 0.0})
    hook, found = RatioWatch(), {"b": Agreement(100, 1.5, 0.4)}

    def step(**changes):
        fields = dict(version=1, applied=True, metrics={}, batch=SimpleNamespace(index=5),
                      trained=[], fresh=[], agreement=found)  # fmt: skip
        made_step = SimpleNamespace(**(dict(fields, replayed=False) | changes))
        hook.step(made.loop, made_step)
        hook.published(made.loop)
        return made_step.metrics

    assert step(replayed=True) == {"ratio_on_policy": 1.5, "ratio_deviation": 0.5}
    assert step(agreement={"b": Agreement(3, 1.5, 0.4)}) == {"ratio_on_policy": 1.5}
    assert step(applied=False) == step(agreement={}) == {}
    with pytest.raises(UserError, match="b: 100 tokens"):
        step()
