"""A run in miniature, for tests and for the programs that they kill: weights are a hash of all that
was trained, in order, and a rollout follows from seed and version alone."""

import hashlib
import json
import os
import shutil

import numpy as np

from jax_t2sql.bus import (
    Bounds,
    Contract,
    NewTask,
    Rollout,
    SamplerBus,
    collect_adapters,
    collect_groups,
    read_adapter,
    start_or_takeover,
)

CONTRACT = Contract(
    config="c", code="d", base_model="m", tokenizer="t", prompt="p", grader="g", data="x"
)
VOCAB = 100


def rollout(*, seed: int = 0, version: int = 0, length: int = 8, **changes) -> Rollout:
    """`changes` replace arguments of `Rollout.make`."""
    rng = np.random.default_rng([seed, version])
    arguments = dict(
        mask_T=np.arange(length) >= 3,
        logprobs_T=-rng.random(length),
        versions_T=np.full(length, version),
        reward=float(seed % 3 > 0),
        terms={"result": 1.0},
        ending="answered",
    )
    ids = changes.pop("ids_T", rng.integers(0, VOCAB, length))
    return Rollout.make(ids, **(arguments | changes))


def rollouts(task, version: int) -> list[Rollout]:
    return [rollout(seed=task.seed + n, version=version) for n in range(task.group_size)]


def train(weights: str, groups, pack_seed: int = 0) -> str:
    digest = hashlib.sha256(f"{weights} {pack_seed}".encode())
    for group in groups:
        for r in group.rollouts:
            digest.update(r.ids_i32 + r.logprobs_f32 + r.versions_i32)
    return digest.hexdigest()


def new_tasks(count: int, *, first_seed: int = 0, **changes) -> list[NewTask]:
    return [
        NewTask(**{"problem": f"q{n}", "group_size": 2, "seed": first_seed + n} | changes)
        for n in range(count)
    ]


class Checkpoint:
    """Weights and the log's position in a file that is replaced at once; the last two positions."""

    def __init__(self, path):
        self.path = path
        saved = json.loads(path.read_text()) if path.exists() else ["", []]
        self.weights, self.positions = saved[0], [tuple(position) for position in saved[1]]

    @property
    def position(self):
        return self.positions[-1] if self.positions else None

    @property
    def floor(self):
        """What nobody goes back behind."""
        return self.positions[0][0] if len(self.positions) == 2 else None

    def save(self, weights, position):
        self.weights, self.positions = weights, [*self.positions[-1:], position]
        staged = self.path.with_suffix(".new")
        staged.write_text(json.dumps([weights, self.positions]))
        staged.replace(self.path)


def publish(bus, folder, weights, floor):
    """Publishes weights as an adapter, and collects what nobody needs any more."""
    directory = folder / f"export-{os.getpid()}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    (directory / "weights").write_text(weights)
    bus.publish(directory, floor=floor)
    collect_groups(bus.store, bus.state)
    collect_adapters(bus.store, bus.state, keep_newest=2)


class Killed(BaseException):
    """The process is gone; nothing may catch this as an error."""


class Dying:
    """A store, and all else that a process does; dies before its n-th act, or having done it.

    acts: how many it does. watched: the store's methods that count as acts.
    """

    def __init__(self, inner, *, acts=None, done=False, watched=("create", "overwrite", "delete")):
        self.inner, self.acts, self.done, self.watched = inner, acts, done, watched
        self.names = []

    def act(self, name, do):
        self.names.append(name)
        if self.acts is None or len(self.names) <= self.acts:
            return do()
        if self.done and len(self.names) == self.acts + 1:
            do()
        self.die()

    def die(self):
        raise Killed

    def __getattr__(self, name):
        method = getattr(self.inner, name)
        if name not in self.watched:
            return method
        return lambda *args, **options: self.act(name, lambda: method(*args, **options))


class Trainer:
    """A learner with its sampler inside, from start or takeover to the end of the run.

    noise: adds to replayed weights, which are never the same bits on another machine.
    """

    STEPS, EVERY, BATCH = 4, 2, 2

    def __init__(self, store: Dying, folder, noise=None):
        self.store, self.folder, self.noise = store, folder, noise

    def run(self) -> str:
        checkpoint = Checkpoint(self.folder / "checkpoint.json")
        bus = start_or_takeover(
            self.store,
            run="run",
            contract=CONTRACT,
            bounds=Bounds(vocab_size=VOCAB, groups_per_batch=self.BATCH + 1),
            learner="test",
        )
        weights = checkpoint.weights
        for step in bus.replay(checkpoint.position):
            weights = self.update(weights, step.groups, step.batch.pack_seed)
            if self.noise is not None:
                weights += f" noise {next(self.noise)}"
        publish(bus, self.folder, weights, checkpoint.floor)
        sampler = SamplerBus(
            self.store, sampler="inline", contract=CONTRACT, learner_epoch=bus.epoch
        )
        while bus.version < self.STEPS:
            if bus.capacity:
                at = bus.state.next_seq
                bus.issue(new_tasks(bus.capacity, first_seed=at), cursor={"at": at})
            sampler.refresh()
            read_adapter(self.store, sampler.adapter)
            for task in sampler.claim(100):
                sampler.put_groups([sampler.make_group(task, rollouts(task, bus.version))])
            ready = bus.ready_groups()
            for group in ready[self.BATCH :]:
                bus.decide(group.task.seq, "zero-signal")
            batch = bus.append_batch(ready[: self.BATCH], pack_seed=bus.version)
            groups = [group.group for group in ready[: self.BATCH]]
            weights = self.update(weights, groups, batch.pack_seed)
            if (bus.version + 1) % self.EVERY == 0:
                saved = (weights, bus.position)
                self.store.act("checkpoint", lambda saved=saved: checkpoint.save(*saved))
            publish(bus, self.folder, weights, checkpoint.floor)
        bus.end(reason="done", final=bus.state.last_publish.adapter.name)
        return weights

    def update(self, weights, groups, pack_seed):
        return self.store.act("update", lambda: train(weights, groups, pack_seed))
