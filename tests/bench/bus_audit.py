"""Audit of a large bus: ``python tests/bench/bus_audit.py [GROUPS]``, 10,000 by default.

Makes a run of groups of eight rollouts with 600 ids each on a local disk, then audits it. Made
without fsync, since nothing of it must outlive a power cut: that is most of the time.
"""

import sys
import tempfile
import time

import numpy as np

from jax_t2sql.bus import (
    Bounds,
    Contract,
    NewTask,
    Rollout,
    SamplerBus,
    open_store,
    start_or_takeover,
)
from jax_t2sql.bus.audit import audit

CONTRACT = Contract(
    config="c", code="d", base_model="m", tokenizer="t", prompt="p", grader="g", data="x"
)
BATCH, ROLLOUTS, LENGTH, PROMPT = 100, 8, 600, 400


class Quick:
    """A store whose objects are never durable."""

    def __init__(self, inner):
        self.inner = inner

    def create(self, key, data, *, durable=True):
        return self.inner.create(key, data, durable=False)

    def __getattr__(self, name):
        return getattr(self.inner, name)


def rollout(rng, version):
    return Rollout.make(
        rng.integers(0, 32_000, LENGTH),
        mask_T=np.arange(LENGTH) >= PROMPT,
        logprobs_T=-rng.random(LENGTH),
        versions_T=np.full(LENGTH, version),
        reward=1.0,
        terms={},
        ending="answered",
        trace="x" * 500,
    )


def make_run(store, groups):
    bounds = Bounds(vocab_size=32_000, groups_per_batch=BATCH)
    bus = start_or_takeover(store, run="run", contract=CONTRACT, bounds=bounds, learner="bench")
    bus.publish()
    sampler = SamplerBus(store, sampler="s", contract=CONTRACT)
    rng = np.random.default_rng(0)
    for version in range(groups // BATCH):
        tasks = [NewTask(problem=f"q{n}", group_size=ROLLOUTS, seed=n) for n in range(BATCH)]
        bus.issue(tasks, cursor={})
        sampler.refresh()
        sampler.put_groups(
            [
                sampler.make_group(task, [rollout(rng, version) for _ in range(ROLLOUTS)])
                for task in sampler.claim(BATCH)
            ]
        )
        bus.append_batch(bus.ready_groups(), pack_seed=0)
        bus.publish()


def main():
    groups = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder)
        began = time.process_time()
        make_run(Quick(store), groups)
        made = time.process_time() - began
        wall, cpu = time.perf_counter(), time.process_time()
        result = audit(store)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{groups} groups made in {made:.1f} CPU-s: {result.counts}")
    print(f"audited in {cpu:.1f} CPU-s ({wall:.1f} s), {'sound' if result.sound else 'FAULTS'}")


if __name__ == "__main__":
    main()
