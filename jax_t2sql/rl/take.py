"""From what arrived to what is trained on now."""

import time
from dataclasses import dataclass

from jax_t2sql.bus import Group, ReadyGroup
from jax_t2sql.groups import advantages, group_metrics, traces
from jax_t2sql.rl.loop import Loop

# As many steps' worth of groups in a row without a signal, and the run says why and stops.
BARREN_STEPS = 10


@dataclass(frozen=True)
class Taken:
    """One look at what arrived.

    Attributes:
      batch: to be trained on now; nothing if there is not enough yet.
      fresh: groups seen for the first time.
      signals: how many of these have a signal.
      sampled: groups that this process made, or else `fresh`: what a message may quote.
    """

    batch: list[ReadyGroup]
    fresh: list[Group]
    signals: int
    sampled: list[Group]


def take(loop: Loop) -> Taken:
    """Samples or waits, sorts out what teaches nothing, and chooses from the rest."""
    sampled = loop.sampling.work(loop)
    fresh, learnable, signals = [], [], 0
    started = time.perf_counter()
    arrived = loop.bus.ready_groups()
    seconds = time.perf_counter() - started
    for ready in arrived:
        signal = not advantages(ready.group)[1]
        if ready.task.seq not in loop.seen:
            fresh.append(ready.group)
            signals += signal
        if signal:
            learnable.append(ready)
        else:
            loop.bus.decide(ready.task.seq, "zero-signal")
    loop.seen = loop.seen & loop.bus.state.open_tasks.keys() | {group.seq for group in fresh}
    loop.spend("bus" if fresh else "wait", seconds)  # a look that finds nothing delays nothing
    batch = list(loop.sampling.choose(loop, learnable))
    return Taken(batch, fresh, signals, sampled or fresh)


def example(groups: list[Group]) -> str:
    """One sampled answer and how it ended."""
    for trace in traces(groups):
        text, ending = trace["turns"][-1]["text"][:300], trace["ending"]
        return f" One sampled answer ({ending}): {text!r}."
    return ""


def why_barren(groups: list[Group]) -> str:
    """What to tell a user whose rollouts never differ in reward."""
    metrics = group_metrics(groups)
    return (
        f"{BARREN_STEPS} steps in a row had no group with both better and worse rollouts: accuracy"
        f" {metrics['accuracy_train']:.0%}, cut off {metrics['cut_off_share']:.0%}, contract broken"
        f" {metrics['contract_broken_share']:.0%}, could not be graded"
        f" {metrics['invalid_share']:.0%}.{example(groups)} If nothing is ever right, warm up"
        " first (--warmup.steps), or choose a stronger model or easier questions; if turns are cut"
        " off, raise --prompt.max-tokens"
    )
