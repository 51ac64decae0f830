"""A learner with an inline sampler as a process of its own: ``run_process.py BUS WORK STEPS``.

Prints a line for each thing done, so that a test can kill it at a known place.
"""

import os
import sys
from pathlib import Path

from toy_run import CONTRACT, VOCAB, Checkpoint, new_tasks, rollouts, train

from jax_t2sql.bus import Bounds, LostLeadership, SamplerBus, open_store, start_or_takeover


def say(text):
    print(text, flush=True)


def main(bus_directory, work, steps):
    bus = start_or_takeover(
        open_store(bus_directory),
        run="run",
        contract=CONTRACT,
        bounds=Bounds(vocab_size=VOCAB, groups_per_batch=3, max_attempts=50),
        learner=f"process {os.getpid()}",
    )
    say("lead")
    checkpoint = Checkpoint(work / "checkpoint.json")
    weights = checkpoint.weights
    for step in bus.replay(checkpoint.position):
        weights = train(weights, step.groups)
    bus.publish()
    say("replayed")
    sampler = SamplerBus(bus.store, sampler="inline", contract=CONTRACT, learner_epoch=bus.epoch)
    while bus.version < steps:
        if bus.capacity:
            at = bus.state.next_seq
            bus.issue(new_tasks(bus.capacity, first_seed=at), cursor={"at": at})
            say("issued")
        bus.expire_claims(still_seconds=60)
        sampler.refresh()
        for task in sampler.claim(100):
            sampler.put_groups([sampler.make_group(task, rollouts(task, bus.version))])
            say("group")
        ready = bus.ready_groups()
        if not ready:
            continue
        bus.append_batch(ready, pack_seed=bus.version)
        say("batch")
        weights = train(weights, [r.group for r in ready])
        if bus.version % 2:
            checkpoint.save(weights, bus.position)
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
