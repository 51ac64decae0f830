"""Garbage collection below the floor that the log itself states. The log is never collected."""

from jax_t2sql.bus.keys import ADAPTERS, CLAIMS, GROUPS, adapter_of, claim_numbers, group_seq
from jax_t2sql.bus.state import RunState
from jax_t2sql.bus.store import Store


def collect_adapters(store: Store, state: RunState, *, keep_newest: int) -> list[str]:
    """Delete the files of adapters that nobody needs; returns their names.

    Kept are: those published at or above the floor, the newest `keep_newest` published ones, those
    that the last publish entry says to keep, those that an open task pins, the end's final and
    best, and whatever the log does not name (a learner may be about to name it).
    """
    if keep_newest < 1:
        raise ValueError(f"keep_newest={keep_newest} must be at least 1: samplers need the last")
    published = dict.fromkeys(ref.name for _, ref in reversed(state.adapters))  # newest first
    kept = set(list(published)[:keep_newest])
    kept.update(ref.name for index, ref in state.adapters if index >= state.floor)
    kept.update(state.last_publish.keep if state.last_publish else ())
    kept.update(task.adapter for task in state.open_tasks.values() if task.adapter)
    if state.end is not None:
        kept.update(name for name in (state.end.final, state.end.best) if name)
    garbage = published.keys() - kept
    doomed = [key for key in store.keys(ADAPTERS) if adapter_of(key) in garbage]
    store.delete(doomed)
    return sorted({adapter_of(key) for key in doomed})


def collect_groups(store: Store, state: RunState) -> int:
    """Delete groups and claims of tasks whose fate stands below the floor; returns how many.

    No checkpoint from the floor upwards replays them, and no reader counts them any more.
    """

    def is_garbage(seq: int | None) -> bool:
        return seq in state.fates and state.fates[seq][1] < state.floor

    doomed = [key for key in store.keys(GROUPS) if is_garbage(group_seq(key))]
    doomed += [
        key
        for key in store.keys(CLAIMS)
        if (numbers := claim_numbers(key)) and is_garbage(numbers[0])
    ]
    store.delete(doomed)
    return len(doomed)
