"""The reinforcement-learning loop over the bus, with one sampler inside the learner's process.

A step issues tasks, samples and grades their groups, logs the batch, updates, checkpoints and
publishes, in the order of `jax_t2sql.bus.learner_side`; so a run that is killed at any point goes
on where the log says, with the weights that it would have had.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from data_pipelines.questions import QuestionStream
from jax_t2sql.assembly import Run, equivalence_rule, reward_rule
from jax_t2sql.batching import make_batch
from jax_t2sql.bus import (
    Group,
    LearnerBus,
    NewTask,
    SamplerBus,
    collect_adapters,
    collect_groups,
)
from jax_t2sql.errors import UserError
from jax_t2sql.grading import CacheCounts
from jax_t2sql.groups import (
    advantages,
    group_metrics,
    sample_groups,
    sampled_tokens,
    traces,
    trajectories,
)
from jax_t2sql.learner import Checkpointer, Learner, LearnerState, TrainableSpec
from jax_t2sql.policies import rl_schedule, serve
from jax_t2sql.rollouts import rollout_seed
from jax_t2sql.rundir import restore_checkpoint
from jax_t2sql.sampling.engine import Engine

# Steps in a row without a group to learn from, or with a gradient that is not finite, after which
# the run says why and stops.
_BARREN_STEPS = 10


@dataclass
class Loop:
    """What the loop works with; `state` and `version` change as it runs.

    Attributes:
      on_step: called after each update with the version, its metrics and its groups.
      export: writes the trained weights as files into a folder.
      on_publish: called when a version is complete, on disk where due, and served.
      say: shows the user one line.
    """

    run: Run
    learner: Learner
    spec: TrainableSpec
    state: LearnerState
    engine: Engine
    learner_bus: LearnerBus
    sampler_bus: SamplerBus
    checkpointer: Checkpointer
    export: Callable[[LearnerState, Path], None]
    on_step: Callable[[int, dict, Sequence[Group]], None]
    on_publish: Callable[[int], None]
    say: Callable[[str], None]
    version: int = 0
    positions: list[int] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    cache: CacheCounts = CacheCounts()

    @property
    def base(self) -> Any:
        """The frozen weights."""
        return self.run.model.params


def restore(loop: Loop) -> None:
    """Brings the state to the log's version: newest checkpoint, then what was logged after it."""
    position = None
    if loop.checkpointer.latest() is not None:
        like = loop.learner.abstract_state(loop.base)
        loop.state, meta = restore_checkpoint(loop.checkpointer, like)
        position = (meta["log_index"], meta["log_sha256"])
        loop.version = meta["version"]
    applied = True
    for step in loop.learner_bus.replay(position):
        metrics = _update(loop, step.groups, step.batch.pack_seed)
        applied = metrics["skipped"] == 0.0
        loop.version += applied
        if applied:
            loop.on_step(loop.version, metrics, step.groups)
    # Only the last batch can be open, and only that one's fate is still to be told.
    loop.learner_bus.publish(applied=applied or loop.learner_bus.state.open_batch is None)
    loop.version = loop.learner_bus.version
    serve(loop.engine, loop.spec, loop.base, loop.state, loop.version)


def train(loop: Loop) -> None:
    """Runs until the configured number of updates is applied, or nothing is left to learn from.

    Raises:
      UserError: many steps in a row had nothing to learn from, or a gradient that is not finite.
    """
    config = loop.run.config
    problems = {problem.question_id: problem for problem in loop.run.questions.train}
    questions = loop.run.questions
    stream = QuestionStream(questions.train, seed=config.seed, shares=questions.shares)
    if (cursor := loop.learner_bus.state.cursor) is not None:
        stream.restore(cursor)
    barren = skipped = 0
    while loop.version < config.rl.steps:
        loop.seconds = {}
        _issue(loop, stream)
        sampled = _sample(loop, problems)
        ready = loop.learner_bus.ready_groups()
        learnable = []
        for group in ready:
            if advantages(group.group)[1]:
                loop.learner_bus.decide(group.task.seq, "zero-signal")
            else:
                learnable.append(group)
        if not learnable:
            barren += 1
            if barren >= _BARREN_STEPS:
                why = _why_barren([group.group for group in ready] or sampled)
                if loop.version == 0:
                    raise UserError(why)
                # What was learned so far is kept: the run goes on to its last evaluation.
                loop.say(f"stopped at step {loop.version}: {why}")
                return
            continue
        barren = 0
        batch = loop.learner_bus.append_batch(learnable, pack_seed=loop.version)
        metrics = _update(loop, [group.group for group in learnable], batch.pack_seed)
        applied = metrics["skipped"] == 0.0
        loop.version += applied
        skipped = 0 if applied else skipped + 1
        metrics |= group_metrics([group.group for group in ready])
        metrics |= _cache_metrics(loop)
        if loop.version == 1 and applied:
            _warn_of_format(loop, metrics, sampled)
        metrics |= {
            "staleness_mean": float(np.mean([g.staleness(batch.step) for g in learnable])),
            "length_used_vs_all": batch.length_ratio,
            "tokens_per_second": sampled_tokens(sampled) / max(loop.seconds["sample"], 1e-9),
            **{f"seconds_{name}": value for name, value in loop.seconds.items()},
        }
        if applied:
            loop.on_step(loop.version, metrics, [group.group for group in ready])
        else:
            loop.say(f"an update after step {loop.version} was skipped: its gradient is not finite")
        due = loop.version % config.checkpoint.every == 0 or loop.version == config.rl.steps
        if applied and due:
            save_and_publish(loop)
        else:
            loop.learner_bus.publish(applied=applied)
        serve(loop.engine, loop.spec, loop.base, loop.state, loop.version)
        if applied:
            loop.on_publish(loop.version)
        elif skipped >= _BARREN_STEPS:
            raise UserError(
                f"{skipped} updates in a row were skipped, since their gradients were not finite;"
                " lower --optimizer.lr, or use --learner.dtype float32, in another --workdir"
            )


def save_and_publish(loop: Loop) -> None:
    """Writes a checkpoint that knows its place in the log, then publishes the weights as files.

    The sampler in this process shares the learner's arrays, so files are for others to read and
    only due with a checkpoint. What no kept checkpoint can need again is then collected.
    """
    bus = loop.learner_bus
    index, sha256 = bus.position
    meta = {"version": loop.version, "log_index": index, "log_sha256": sha256}
    loop.checkpointer.save(loop.version, loop.state, meta)
    loop.positions.append(index)
    del loop.positions[: -loop.run.config.checkpoint.keep]
    # A fixed name: what a killed process left there is swept out, not kept for ever.
    directory = loop.run.workdir / "export.tmp"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    loop.export(loop.state, directory)
    # Until as many checkpoints exist as are kept, one of an earlier process may be among them.
    full = len(loop.positions) == loop.run.config.checkpoint.keep
    bus.publish(directory, floor=loop.positions[0] if full else None)
    shutil.rmtree(directory)
    collect_groups(bus.store, bus.state)
    collect_adapters(bus.store, bus.state, keep_newest=loop.run.config.checkpoint.keep)


def _cache_metrics(loop: Loop) -> dict[str, float]:
    """Share of this step's checks for equivalence whose verdict was known."""
    counts = loop.run.pool.equivalence_cache
    asked, known = counts.asked - loop.cache.asked, counts.known - loop.cache.known
    loop.cache = counts
    return {"equivalence_cache_hits": known / asked} if asked else {}


def _issue(loop: Loop, stream: QuestionStream) -> None:
    count = min(loop.run.config.rl.groups, loop.learner_bus.capacity)
    if count <= 0:
        return
    first = loop.learner_bus.state.next_seq
    tasks = []
    for seq in range(first, first + count):
        problem = stream.next()
        tasks.append(
            NewTask(
                problem=problem.question_id,
                group_size=loop.run.config.rl.group_size,
                seed=rollout_seed(loop.run.config.seed, seq),
            )
        )
    loop.learner_bus.issue(tasks, cursor=stream.state())


def _sample(loop: Loop, problems: dict) -> list[Group]:
    """Claims what is open, plays and grades it, hands it over."""
    started = time.perf_counter()
    loop.sampler_bus.refresh()
    tasks = loop.sampler_bus.claim(loop.run.config.rl.groups)
    groups = sample_groups(
        tasks,
        problems,
        bus=loop.sampler_bus,
        policy=loop.engine,
        prompts=loop.run.prompts,
        pool=loop.run.pool,
        reward_empty=loop.run.config.data.empty_gold == "keep",
        rule=reward_rule(loop.run.config.reward),
        equivalence=equivalence_rule(loop.run.config.reward),
    )
    loop.sampler_bus.put_groups(groups)
    loop.seconds["sample"] = time.perf_counter() - started
    return groups


def _update(loop: Loop, groups: Sequence[Group], pack_seed: int) -> dict[str, float]:
    """One update on these groups; the state is replaced. Metrics are plain numbers."""
    started = time.perf_counter()
    config = loop.run.config
    sequences = trajectories(groups)
    order = np.random.default_rng(pack_seed).permutation(len(sequences))
    batch = make_batch([sequences[i] for i in order], config.learner, loop.run.batch_limits)
    lr = rl_schedule(config)(int(loop.state.step))
    loop.state, metrics = loop.learner.update(loop.base, loop.state, batch)
    metrics = {name: float(value) for name, value in jax.device_get(metrics).items()}
    loop.seconds["update"] = time.perf_counter() - started
    return metrics | {"lr": lr}


def _warn_of_format(loop: Loop, metrics: dict[str, float], groups: Sequence[Group]) -> None:
    """Says so at once if most first answers are not in the form that the prompt asks for."""
    failed = metrics["cut_off_share"] + metrics["contract_broken_share"]
    if failed > 0.5:
        loop.say(
            f"warning: {failed:.0%} of the first answers are cut off or not in the form asked for;"
            f" training goes on.{_example(groups)}"
        )


def _example(groups: Sequence[Group]) -> str:
    """One sampled answer and how it ended."""
    for trace in traces(groups):
        text, ending = trace["turns"][-1]["text"][:300], trace["ending"]
        return f" One sampled answer ({ending}): {text!r}."
    return ""


def _why_barren(groups: Sequence[Group]) -> str:
    """What to tell a user whose rollouts never differ in reward."""
    metrics = group_metrics(groups)
    return (
        f"{_BARREN_STEPS} steps in a row had no group with both better and worse rollouts: accuracy"
        f" {metrics['accuracy_train']:.0%}, cut off {metrics['cut_off_share']:.0%}, contract broken"
        f" {metrics['contract_broken_share']:.0%}, could not be graded"
        f" {metrics['invalid_share']:.0%}.{_example(groups)} If nothing is ever right, warm up"
        " first (--warmup.steps), or choose a stronger model or easier questions; if turns are cut"
        " off, raise --prompt.max-tokens"
    )
