"""From objects that samplers put to groups that may be trained on, and fates for the others."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from jax_t2sql.bus.claims import read_claim
from jax_t2sql.bus.entries import Decision, Fate, Kind, Task, sha256_hex
from jax_t2sql.bus.faults import BadObject
from jax_t2sql.bus.groups import MAX_GROUP_BYTES, Group, check_group, decode_group
from jax_t2sql.bus.keys import GROUPS, group_key, group_seq
from jax_t2sql.bus.state import RunState
from jax_t2sql.bus.store import Store

_READERS = 8


@dataclass(frozen=True)
class ReadyGroup:
    """A verified group, the task that it answers and the sha256 of its object."""

    task: Task
    group: Group
    sha256: str

    def staleness(self, version: int) -> int:
        """Versions between `version` and the oldest sampled token; 0 if nothing was sampled."""
        oldest = self.group.oldest_version
        return 0 if oldest is None else version - oldest


class Intake:
    """Open tasks on their way to a fate, between two batch entries.

    ready: verified groups by seq, not decided. decided: fates that no entry holds yet. Both are
    lost with the process and found again by the next one, since they follow from the log and the
    objects (and from the trainer's own, repeatable judgement).
    """

    def __init__(self, store: Store, state: RunState):
        self.store = store
        self.state = state
        self.ready: dict[int, ReadyGroup] = {}
        self.decided: dict[int, Decision] = {}
        self._passed_over: list[int] = []  # rollout lengths of groups that got another fate

    def undecided(self) -> list[Task]:
        return [task for task in self.state.open_tasks.values() if task.seq not in self.decided]

    def of_kinds(self, *kinds: Kind) -> list[ReadyGroup]:
        """Ready groups of these kinds, oldest task first."""
        ordered = (self.ready[seq] for seq in sorted(self.ready))
        return [ready for ready in ordered if ready.task.kind in kinds]

    def fetch(self) -> None:
        """Read and verify what arrived; unusable groups get their fate."""
        waiting = {task.seq: task for task in self.undecided() if task.seq not in self.ready}
        if not waiting:
            return
        listed = self.store.keys(GROUPS, start=group_key(min(waiting)))
        present = [waiting[seq] for key in listed if (seq := group_seq(key)) in waiting]
        with ThreadPoolExecutor(_READERS, "bus-read") as pool:
            results = list(pool.map(self._fetch_one, present))
        for task, result in zip(present, results, strict=True):
            if isinstance(result, BadObject):
                self.decide(task.seq, result.fate, reason=str(result), sampler=result.sampler)
            elif result is not None:
                self.ready[task.seq] = result

    def drop_stale(self) -> None:
        """Training groups beyond the staleness bound get that fate."""
        bound = self.state.start.bounds.max_staleness
        for ready in self.of_kinds("train", "hinted"):
            if (age := ready.staleness(self.state.version)) > bound:
                reason = f"{age} versions old, the bound is {bound}"
                self.decide(ready.task.seq, "stale", reason=reason)

    def drop_quarantined(self) -> None:
        """Groups that arrived from a sampler before it was quarantined are invalid."""
        for ready in list(self.ready.values()):
            if fault := _quarantine_fault(self.state, ready.group.sampler):
                self.decide(ready.task.seq, "invalid", reason=fault)

    def decide(self, seq: int, fate: Fate, *, reason: str, sampler: str | None = None) -> None:
        """Raises ValueError if the task is not open or has a fate already."""
        if seq in self.decided or seq not in self.state.open_tasks:
            known = self.decided[seq].fate if seq in self.decided else self.state.fates.get(seq)
            raise ValueError(f"task {seq} is not undecided (fate so far: {known})")
        ready = self.ready.pop(seq, None)
        outcome = None
        if ready is not None:
            self._passed_over += ready.group.lengths
            sampler, outcome = sampler or ready.group.sampler, ready.group.outcome
        self.decided[seq] = Decision(
            seq=seq, fate=fate, reason=reason, sampler=sampler, outcome=outcome
        )

    def check_batch(self, groups: Sequence[ReadyGroup]) -> None:
        """Raises ValueError if these cannot be the groups of a batch now."""
        seqs = [ready.task.seq for ready in groups]
        if not seqs or len(set(seqs)) != len(seqs):
            raise ValueError(f"a batch needs at least one group and each once, got seqs {seqs}")
        bound = self.state.start.bounds.max_staleness
        for ready, seq in zip(groups, seqs, strict=True):
            if self.ready.get(seq) is not ready or ready.task.kind == "eval":
                raise ValueError(f"group {seq} is not one that ready_groups() gives now")
            if ready.staleness(self.state.version) > bound:
                raise ValueError(f"group {seq} is too stale; take groups from ready_groups() again")

    def length_ratio(self, groups: Sequence[ReadyGroup]) -> float:
        """Mean rollout length of `groups` over that of all that this batch decides.

        Each group counts once, when its fate is decided; one that waits for a later batch does not.
        """
        used = [length for ready in groups for length in ready.group.lengths]
        return _mean(used) / max(_mean(used + self._passed_over), 1.0)

    def batch_logged(self, groups: Sequence[ReadyGroup]) -> None:
        """An entry now holds the fates of `groups` and all of `decided`."""
        for ready in groups:
            del self.ready[ready.task.seq]
        self.decided.clear()
        self._passed_over.clear()

    def _fetch_one(self, task: Task) -> ReadyGroup | BadObject | None:
        try:
            return fetch_group(self.store, self.state, task)
        except BadObject as error:
            return error
        except FileNotFoundError:  # listed, then collected
            return None


def fetch_group(store: Store, state: RunState, task: Task) -> ReadyGroup:
    """Read and verify the group of an open task.

    Raises:
        BadObject: it cannot be used; `.fate` says how, `.sampler` who made it (from the group
            itself, else from the claim).
        FileNotFoundError: there is none yet.
    """
    try:
        data = read_group(store, task.seq)
        group = decode_group(data)
    except BadObject as error:
        holder = _claimant(store, task)
        message = f"group {task.seq} of {holder or 'an unknown sampler'!r}: {error}"
        raise BadObject(error.fate, message, sampler=holder) from error
    if fault := _quarantine_fault(state, group.sampler):
        raise BadObject("invalid", f"group {task.seq}: {fault}", sampler=group.sampler)
    check_group(
        group,
        task,
        contract=state.start.contract.sha256,
        bounds=state.start.bounds,
        version=state.version,
    )
    return ReadyGroup(task, group, sha256_hex(data))


def read_group(store: Store, seq: int) -> bytes:
    """The bytes of a group's object. BadObject if it cannot be one, FileNotFoundError if absent."""
    try:
        return store.read(group_key(seq), max_bytes=MAX_GROUP_BYTES)
    except ValueError as error:  # too large, or a link
        raise BadObject("corrupt", str(error)) from error


def _quarantine_fault(state: RunState, sampler: str) -> str | None:
    if sampler not in state.quarantined:
        return None
    reason, index = state.quarantined[sampler]
    return f"sampler {sampler!r} is quarantined by entry {index}: {reason}"


def _claimant(store: Store, task: Task) -> str | None:
    try:
        claim = read_claim(store, task)
    except ValueError:
        return None
    return claim.sampler if claim else None


def _mean(values: Sequence[int]) -> float:
    return sum(values) / max(len(values), 1)
