"""A fleet that is killed at random: ``chaos_run.py BUS WORK JSON``, prints what happened as JSON.

One learner whose training is a hash, several samplers, all processes of their own, forked from this
one so that each is up at once. Somebody is killed by SIGKILL at random moments and started again;
the learner goes on until all kills have struck, and then ends the run.
"""

import json
import multiprocessing
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from toy_run import CONTRACT, VOCAB, Checkpoint, publish, rollouts, train

from jax_t2sql.bus import (
    Bounds,
    LostLeadership,
    NewTask,
    RunEnded,
    SamplerBus,
    open_store,
    read_adapter,
    start_or_takeover,
)
from jax_t2sql.errors import UserError

POISON = "poison"
# Never over while a sampler lives, however slow the machine; one that was killed is started again
# under its name, which tells the learner at once.
STILL_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """steps: to train, at least. seed: of the kills. kills: how many, or names whom to kill.
    samplers: how many processes. zero_share: of groups without signal. poison: how many problems
    kill whoever samples them."""

    steps: int
    seed: int = 0
    kills: int | list[str] = 0
    samplers: int = 3
    batch: int = 4
    staleness: int = 2
    zero_share: float = 0.3
    attempts: int = 500
    poison: int = 0


def learner(bus_location, work, plan):
    store = open_store(bus_location)
    try:
        bus = start_or_takeover(
            store,
            run="chaos",
            contract=CONTRACT,
            bounds=Bounds(
                vocab_size=VOCAB,
                groups_per_batch=plan.batch,
                max_staleness=plan.staleness,
                max_attempts=plan.attempts,
            ),
            learner=f"process {os.getpid()}",
        )
        lead(bus, work, plan)
    except LostLeadership:
        sys.exit(3)  # none is ever alive beside another
    except RunEnded:
        return


def lead(bus, work, plan):
    checkpoint = Checkpoint(work / "checkpoint.json")
    weights = checkpoint.weights
    for step in bus.replay(checkpoint.position):
        # Replayed weights are never the same bits: another machine, another order of sums.
        weights = train(weights, step.groups) + os.urandom(2).hex()
    publish(bus, work, weights, checkpoint.floor)
    while bus.version < plan.steps or not (work / "enough").exists():
        if bus.capacity > 0:
            at = bus.state.next_seq
            tasks = [new_task(at + n, plan) for n in range(bus.capacity)]
            bus.issue(tasks, cursor={"at": at + len(tasks)})
        bus.expire_claims(still_seconds=STILL_SECONDS)
        ready = []
        for group in bus.ready_groups():
            if random.Random(group.task.seq).random() < plan.zero_share:
                bus.decide(group.task.seq, "zero-signal")
            else:
                ready.append(group)
        if not ready:
            time.sleep(0.002)
            continue
        used = ready[: plan.batch]
        bus.append_batch(used, pack_seed=bus.version)
        weights = train(weights, [group.group for group in used])
        if bus.version % 3 == 2:
            checkpoint.save(weights, bus.position)
        publish(bus, work, weights, checkpoint.floor)
    bus.end(reason="done", final=bus.state.last_publish.adapter.name)


def new_task(seq, plan):
    name = f"{POISON}{seq}" if seq < plan.poison else f"q{seq}"
    return NewTask(problem=name, group_size=2, seed=seq)


def sampler(bus_location, name):
    store = open_store(bus_location)
    rng = random.Random(os.getpid())
    while True:
        try:
            bus = SamplerBus(store, sampler=name, contract=CONTRACT)
            break
        except UserError:
            time.sleep(0.01)  # no run yet
    while not bus.ended:
        bus.heartbeat(served=bus.version)
        if bus.adapter is None:
            bus.refresh()
            continue
        read_adapter(store, bus.adapter)
        version = bus.version
        for task in bus.claim(1, rng=rng):
            bus.heartbeat(served=version)
            if task.problem.startswith(POISON):
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(rng.random() * 0.01)  # groups finish in any order
            bus.put_groups([bus.make_group(task, rollouts(task, version))])
        bus.refresh()
        time.sleep(rng.random() * 0.005)


def run(bus_location, work, plan, seconds):
    fork = multiprocessing.get_context("fork")
    jobs = {"learner": (learner, (bus_location, work, plan))}
    for number in range(plan.samplers):
        jobs[f"s{number}"] = (sampler, (bus_location, f"s{number}"))
    rng = random.Random(plan.seed)
    whom = plan.kills
    if isinstance(whom, int):
        whom = [rng.choice(list(jobs)) for _ in range(whom)]
    alive, struck, died = {}, [], []
    deadline = time.monotonic() + seconds
    next_kill = time.monotonic()
    try:
        while time.monotonic() < deadline:
            for name, (target, arguments) in jobs.items():
                process = alive.get(name)
                if process is not None and process.exitcode == 0 and name == "learner":
                    return {"struck": struck, "died": died, "ended": True}
                if process is None or process.exitcode is not None:
                    if process is not None and process.exitcode not in (0, -signal.SIGKILL):
                        died.append([name, process.exitcode])
                    alive[name] = fork.Process(target=target, args=arguments, daemon=True)
                    alive[name].start()
            if len(struck) == len(whom):
                (work / "enough").touch()
            elif time.monotonic() >= next_kill:
                name = whom[len(struck)]
                alive[name].kill()
                alive[name].join()
                struck.append(name)
                next_kill = time.monotonic() + rng.random() * 0.12
            time.sleep(0.002)
        return {"struck": struck, "died": died, "ended": False}
    finally:
        for process in alive.values():
            process.kill()
            process.join()


if __name__ == "__main__":
    options = json.loads(sys.argv[3])
    limit = options.pop("seconds")
    print(json.dumps(run(sys.argv[1], Path(sys.argv[2]), Plan(**options), limit)))
