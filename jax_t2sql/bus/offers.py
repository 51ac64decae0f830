"""Which claims are dead, and what is offered again because of it. Only the learner asks."""

from collections.abc import Iterable, Mapping

import msgspec

from jax_t2sql.bus.claims import Claim, read_claim
from jax_t2sql.bus.entries import Task
from jax_t2sql.bus.keys import CLAIMS, GROUPS, claim_key, claim_numbers, group_key, group_seq
from jax_t2sql.bus.samplers import Heartbeat
from jax_t2sql.bus.state import RunState
from jax_t2sql.bus.store import Store


def holders(
    store: Store,
    tasks: Iterable[Task],
    known: Mapping[int, Claim] | None = None,
    heartbeats: Mapping[str, Heartbeat] | None = None,
) -> dict[int, Claim]:
    """The claim on the present offer of each task that has one, by seq.

    An object that is no claim counts as one of a sampler that never moves, so that it expires.
    known: what this returned before, {} at first; a claim never changes, so those are not read
    again. A claim seen for the first time is not read either, since a heartbeat will most often
    have named its holder by the next look: until then it is one of a sampler without a name. None:
    this is the only look, and all claims are read.
    heartbeats: who names a claimed task there need not be looked up in the claim itself.
    """
    named = {
        seq: beat for beat in (heartbeats or {}).values() if not beat.left for seq in beat.held
    }
    wanted = {task.seq: task for task in tasks}
    if not wanted:
        return {}
    listed = store.keys(CLAIMS, start=claim_key(min(wanted), 0))
    claimed = {claim_numbers(key) for key in listed}
    found = {}
    for task in wanted.values():
        if (task.seq, task.attempt) not in claimed:
            continue
        before = known.get(task.seq) if known else None
        seen = before is not None and before.attempt == task.attempt
        if seen and before.sampler:
            found[task.seq] = before
            continue
        if (beat := named.get(task.seq)) is not None:
            found[task.seq] = _claim_of(task, beat.sampler, beat.incarnation)
            continue
        nobody = _claim_of(task, "", f"{task.seq}.{task.attempt}")
        if known is not None and not seen:
            found[task.seq] = nobody
            continue
        try:
            claim = read_claim(store, task)
        except ValueError:
            claim = nobody
        if claim is not None:
            found[task.seq] = claim
    return found


def _claim_of(task: Task, sampler: str, incarnation: str) -> Claim:
    return Claim(
        seq=task.seq,
        attempt=task.attempt,
        sampler=sampler,
        incarnation=incarnation,
        learner_epoch=None,
        nonce="",
    )


def undelivered(store: Store, state: RunState) -> list[Task]:
    """Open tasks that have no group object, good or bad."""
    if not state.open_tasks:
        return []
    listed = store.keys(GROUPS, start=group_key(min(state.open_tasks)))
    delivered = {group_seq(key) for key in listed}
    return [task for task in state.open_tasks.values() if task.seq not in delivered]


def orphans(claims: Mapping[int, Claim], *, epoch: int) -> list[int]:
    """Seqs claimed by a sampler inside a learner process earlier than `epoch`.

    That process is dead, or has lost the lead and is about to exit.
    """
    return [
        seq
        for seq, claim in claims.items()
        if claim.learner_epoch is not None and claim.learner_epoch < epoch
    ]


def next_attempts(state: RunState, seqs: Iterable[int]) -> tuple[tuple[Task, ...], tuple[int, ...]]:
    """(new offers, seqs that have had all attempts that the run's bounds allow)."""
    bound = state.start.bounds.max_attempts
    tasks = [state.open_tasks[seq] for seq in seqs]
    again = tuple(
        msgspec.structs.replace(task, attempt=task.attempt + 1)
        for task in tasks
        if task.attempt + 1 < bound
    )
    return again, tuple(task.seq for task in tasks if task.attempt + 1 >= bound)
