"""A simulated fleet in virtual time on a real bus: ``python tests/bench/fleet.py [WORKERS]``.

Rollouts are long-tailed (lognormal, sigma 1) and 30 % of groups carry no signal. Prints, in one run
each: how long the learner idles and how many groups it trains per time, asynchronous at k = 4
against synchronous; stale fates; the ratio of used to all mean lengths; and, for the whole fleet,
what a group costs in operations of the object store (a listing counts one for each 1,000 names).

The samplers and the learner are the real `SamplerBus` and `LearnerBus`; only time, rollouts and
training are made up. A worker has `IN_FLIGHT` groups under way, looks at the log when it has room
for more, and again after a pause of the real length (`idle_pause`) if there was none.
"""

import heapq
import itertools
import random
import sys
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
from jax_t2sql.bus.contract import idle_pause

CONTRACT = Contract(
    config="c", code="d", base_model="m", tokenizer="t", prompt="p", grader="g", data="x"
)
LEARNER_LOOK = 2.0
BEAT, SIGMA, ZERO_SHARE = 30.0, 1.0, 0.3


class Counted:
    """A store that counts what a bucket would charge for."""

    def __init__(self, inner):
        self.inner, self.counts = inner, dict.fromkeys(("create", "read", "overwrite", "list"), 0)

    def create(self, key, data, *, durable=True):
        self.counts["create"] += 1
        return self.inner.create(key, data, durable=durable)

    def overwrite(self, key, data):
        self.counts["overwrite"] += 1
        return self.inner.overwrite(key, data)

    def read(self, key, **options):
        self.counts["read"] += 1
        return self.inner.read(key, **options)

    def keys(self, prefix, *, start=""):
        found = self.inner.keys(prefix, start=start)
        self.counts["list"] += 1 + len(found) // 1000
        return found

    def delete(self, keys):
        self.inner.delete(keys)

    def local_path(self, key):
        return None


def rollout(version, length):
    return Rollout.make(
        np.arange(length) % 90,
        mask_T=np.arange(length) > 0,
        logprobs_T=np.full(length, -1.0),
        versions_T=np.full(length, version),
        reward=1.0,
        terms={},
        ending="answered",
    )


def simulate(*, workers, in_flight, batch, k, steps, train_seconds, synchronous=False, seed=0):
    """Virtual seconds, idle seconds of the learner, and the bus, after `steps` updates.

    synchronous: the learner waits for all that it issued before it trains.
    """
    rng = random.Random(seed)
    store = Counted(open_store("memory:///"))
    bounds = Bounds(vocab_size=100, groups_per_batch=batch, max_staleness=k)
    bus = start_or_takeover(store, run="sim", contract=CONTRACT, bounds=bounds, learner="sim")
    bus.publish()
    samplers = [SamplerBus(store, sampler=f"w{n}", contract=CONTRACT) for n in range(workers)]
    room = [in_flight] * workers
    pause = idle_pause(bounds, groups_in_flight=in_flight)
    events, order = [], itertools.count()

    def at(when, what, *arguments):
        heapq.heappush(events, (when, next(order), what, arguments))

    def look(now, n):
        samplers[n].refresh()
        won = samplers[n].claim(room[n], rng=rng)
        room[n] -= len(won)
        for task in won:
            # A group ends with its longest rollout; time goes with length.
            length = rng.lognormvariate(4.0, SIGMA)
            at(now + length, "done", n, task, samplers[n].version, max(2, int(length)))
        if room[n]:
            at(now + pause * rng.uniform(0.5, 1.5), "look", n)

    def done(now, n, task, version, length):
        group = samplers[n].make_group(task, [rollout(version, length)])
        samplers[n].put_groups([group])
        room[n] += 1
        if room[n] == 1:
            at(now, "look", n)

    def beat(now, n):
        samplers[n].heartbeat(served=samplers[n].version)
        at(now + BEAT, "beat", n)

    def expire(now):
        bus.expire_claims(still_seconds=10 * BEAT, clock=lambda: now)
        at(now + BEAT, "expire")

    for n in range(workers):
        at(rng.uniform(0, pause), "look", n)
        at(rng.uniform(0, BEAT), "beat", n)
    at(BEAT, "expire")
    acts = {"look": look, "done": done, "beat": beat, "expire": expire}
    now = busy_until = idle = 0.0
    training, waiting = None, set()
    stale = 0
    problem = itertools.count()

    def issue():
        count = bus.capacity
        if synchronous and (waiting or ready):
            return
        # Every sampler reads every entry: few large offers cost less than many small ones.
        if count >= (1 if synchronous else batch // 2):
            tasks = [NewTask(problem=f"q{next(problem)}", group_size=1, seed=0)] * count
            issued = bus.issue(tasks, cursor={})
            waiting.update(task.seq for task in issued)

    at(0.0, "learner")
    ready = []
    while bus.version < steps:
        now, _, what, arguments = heapq.heappop(events)
        if what != "learner":
            acts[what](now, *arguments)
            continue
        if training is not None:
            bus.publish()
            training = None
        before = len(bus.decided)
        ready = bus.ready_groups()
        stale += sum(d.fate == "stale" for d in bus.decided[before:])
        for group in ready:
            if random.Random(group.task.seq).random() < ZERO_SHARE:
                bus.decide(group.task.seq, "zero-signal")
        ready = [group for group in ready if group.task.seq in bus._intake.ready]
        waiting &= {task.seq for task in bus._intake.undecided()} - {g.task.seq for g in ready}
        issue()
        enough = len(ready) >= batch if not synchronous else not waiting and ready
        if enough:
            chosen = ready if synchronous else ready[:batch]
            bus.append_batch(chosen, pack_seed=0)
            training = True
            busy_until = now + train_seconds * len(chosen) / batch
            at(busy_until, "learner")
        else:
            idle += LEARNER_LOOK
            at(now + LEARNER_LOOK, "learner")
    return now, idle, bus, store, stale


def report(name, result):
    now, idle, bus, store, stale = result
    entries = [e for e in bus.log.entries if type(e).__name__ == "Batch"]
    trained = sum(len(e.groups) for e in entries)
    ratio = float(np.mean([e.length_ratio for e in entries]))
    decided = len(bus.state.fates)
    print(
        f"{name}: {trained / now:.2f} groups/s, learner idle {idle / now:.0%}, stale "
        f"{stale / max(decided, 1):.1%} of {decided}, used/all length {ratio:.2f}, "
        f"audit {'sound' if audit(store.inner).sound else 'FAULTS'}"
    )
    return trained / now


def main():
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    # Rollouts take 90 s on average, and training a batch a little longer than sampling one.
    small = {"workers": 64, "in_flight": 1}
    asynchronous = simulate(batch=16, k=4, steps=40, train_seconds=40.0, **small)
    synchronous = simulate(batch=64, k=0, steps=10, train_seconds=160.0, synchronous=True, **small)
    fast = report("asynchronous, k = 4", asynchronous)
    slow = report("synchronous", synchronous)
    print(f"throughput: {fast / slow:.2f} times the synchronous loop's")
    started = time.process_time()
    in_flight, batch = 16, workers * 16 // 4
    result = simulate(
        workers=workers, in_flight=in_flight, batch=batch, k=4, steps=4, train_seconds=60.0
    )
    report(f"{workers} workers with {in_flight} groups in flight each", result)
    counts = result[3].counts
    groups = sum(1 for _ in result[3].inner.keys("groups/"))
    print(
        f"{sum(counts.values()) / groups:.2f} operations a group ({groups} groups: "
        + ", ".join(f"{number / groups:.2f} {name}" for name, number in counts.items())
        + f"), {time.process_time() - started:.0f} CPU-s"
    )


if __name__ == "__main__":
    main()
