"""A learner with an inline sampler as a process of its own: ``run_process.py BUS WORK STEPS``.

Prints a line for each thing done, so that a test can kill it at a known place. Its weights are a
hash of everything trained; the checkpoint (every second step) is one file, replaced at once.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

import numpy as np

from jax_t2sql.bus import (
    Bounds,
    Contract,
    LostLeadership,
    NewTask,
    Rollout,
    SamplerBus,
    open_store,
    start_or_takeover,
)


def say(text):
    print(text, flush=True)


def rollout(seed, version):
    rng = np.random.default_rng([seed, version])
    return Rollout.make(
        rng.integers(0, 100, 8),
        mask_T=np.arange(8) > 2,
        logprobs_T=-rng.random(8),
        versions_T=np.full(8, version),
        reward=1.0,
        terms={},
        ending="answered",
    )


def train(weights, groups):
    digest = hashlib.sha256(weights.encode())
    for group in groups:
        for r in group.rollouts:
            digest.update(r.ids_i32 + r.logprobs_f32)
    return digest.hexdigest()


def main(bus_directory, work, steps):
    contract = Contract(
        config="c", code="d", base_model="m", tokenizer="t", prompt="p", grader="g", data="x"
    )
    store = open_store(bus_directory)
    bus = start_or_takeover(
        store,
        run="run",
        contract=contract,
        bounds=Bounds(vocab_size=100, groups_per_batch=3, max_attempts=50),
        learner=f"process {os.getpid()}",
    )
    say("lead")
    checkpoint = work / "checkpoint.json"
    weights, position = "", None
    if checkpoint.exists():
        weights, position = json.loads(checkpoint.read_text())
    for step in bus.replay(position and tuple(position)):
        weights = train(weights, step.groups)
    bus.publish()
    say("replayed")
    sampler = SamplerBus(store, sampler="inline", contract=contract, learner_epoch=bus.epoch)
    while bus.version < steps:
        if bus.capacity:
            at = bus.state.next_seq
            tasks = [
                NewTask(problem=f"q{at + n}", group_size=2, seed=at + n)
                for n in range(bus.capacity)
            ]
            bus.issue(tasks, cursor={"at": at + len(tasks)})
            say("issued")
        bus.expire_claims(still_seconds=60)
        sampler.refresh()
        for task in sampler.claim(100):
            group = sampler.make_group(
                task, [rollout(task.seed + n, bus.version) for n in range(task.group_size)]
            )
            sampler.put_groups([group])
            say("group")
        ready = bus.ready_groups()
        if not ready:
            continue
        bus.append_batch(ready, pack_seed=bus.version)
        say("batch")
        weights = train(weights, [r.group for r in ready])
        if bus.version % 2:
            staged = checkpoint.with_suffix(".new")
            staged.write_text(json.dumps([weights, bus.position]))
            staged.replace(checkpoint)
            say("checkpoint")
        bus.publish()
        say("published")
    bus.end(reason="done")
    say(f"weights {weights}")


if __name__ == "__main__":
    try:
        main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
    except LostLeadership as error:
        say(f"lost {error}")
        sys.exit(3)
