"""Checks a finished or running bus against every promise of the protocol.

    python -m jax_t2sql.bus.audit BUS

Nothing is trusted but the bytes: the log is read from its beginning, each trained group is fetched
again and compared with what the log says of it. Exit status 0 if all is well, 1 with one line for
each fault, 2 if there is no bus to read, 75 if it cannot be reached.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from jax_t2sql.bus.adapters import read_adapter
from jax_t2sql.bus.entries import (
    AdapterRef,
    AnyEntry,
    Batch,
    BatchGroup,
    End,
    Issue,
    Publish,
    Start,
    Takeover,
    Task,
    sha256_hex,
)
from jax_t2sql.bus.faults import BadObject, LogError
from jax_t2sql.bus.groups import check_group, decode_group
from jax_t2sql.bus.intake import read_group
from jax_t2sql.bus.keys import ADAPTERS, GROUPS, adapter_of, adapter_origin, group_key, group_seq
from jax_t2sql.bus.log import Log
from jax_t2sql.bus.state import RunState
from jax_t2sql.bus.store import Store, open_store
from jax_t2sql.errors import StoreAway, UserError

_READERS = 8
_SHOWN = 50


@dataclass
class Audit:
    """What was found. faults: broken promises. counts: how much was looked at, by name."""

    faults: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        return not self.faults


def audit(store: Store) -> Audit:
    """Check a bus.

    Log: dense, chained, only ever led by one epoch at a time, each entry sound after those before
    it; each issued seq has at most one fate (exactly one if the run has ended), no seq is trained
    twice, no more tasks are outstanding than the bounds allow.
    Groups: each trained one that must still be there has the sha256 and the lengths of its batch
    entry, satisfies the contract, is not over the staleness bound, was sampled by versions that
    were published before the batch, and not by a sampler that was quarantined before it.
    Adapters: named for their run, epoch and step, one name for one content; files as published.

    Raises:
        UserError: there is no run in the store.
    """
    found = Audit()
    try:
        log = Log.open(store)
        state = RunState()
        history = _History(found)
        for entry in log.entries:
            state.apply(entry)
            history.apply(entry)
    except LogError as error:
        found.faults.append(f"log: {error}")
        return found
    if state.start is None:
        raise UserError(f"no run in {store} yet: its log is empty")
    found.counts |= {
        "entries": len(log.entries),
        "takeovers": sum(isinstance(entry, Takeover) for entry in log.entries),
        "issued": state.next_seq,
        "decided": len(state.fates),
        "open": len(state.open_tasks),
        "quarantined": len(state.quarantined),
    }
    _check_fates(found, state)
    _check_outstanding(found, log.entries, state.start)
    _check_groups(found, log, state, history)
    _check_adapters(found, log, state)
    return found


class _History:
    """What the checks of groups need of the log: who was trained when, after which versions."""

    def __init__(self, found: Audit):
        self.found = found
        self.tasks: dict[int, Task] = {}
        self.trained: dict[int, tuple[Batch, BatchGroup]] = {}
        self.published: dict[int, int] = {}  # version to the entry that first published it

    def apply(self, entry: AnyEntry) -> None:
        match entry:
            case Issue():
                self.tasks.update((task.seq, task) for task in entry.tasks)
            case Publish():
                self.published.setdefault(entry.step, entry.index)
            case Batch():
                for group in entry.groups:
                    if group.seq in self.trained:
                        before = self.trained[group.seq][0].index
                        self.found.faults.append(
                            f"seq {group.seq} is trained in entries {before} and {entry.index}"
                        )
                    self.trained[group.seq] = (entry, group)


def _check_fates(found: Audit, state: RunState) -> None:
    known = state.fates.keys() | state.open_tasks.keys()
    missing = sorted(set(range(state.next_seq)) - known)
    if missing:
        found.faults.append(f"issued seqs {missing[:10]} are neither open nor decided")
    if state.end is not None and state.open_tasks:
        found.faults.append(f"the run has ended and leaves {sorted(state.open_tasks)[:10]} open")


def _check_outstanding(found: Audit, entries: list[AnyEntry], start: Start) -> None:
    """At no issue were more training tasks out than the window has places.

    A fate frees its place when it is decided, and is logged by the next batch or end: so those of
    that entry do not count, which is never too strict. Where there is no such entry yet, nothing
    can be said.
    """
    kinds: dict[int, str] = {}
    held: set[int] = set()
    unpublished = 0
    for number, entry in enumerate(entries):
        match entry:
            case Issue():
                kinds.update((task.seq, task.kind) for task in entry.tasks)
                held.update(task.seq for task in entry.tasks if task.kind != "eval")
                freed = _freed_next(entries, number)
                outstanding = len(held - (freed or set())) + unpublished
                if freed is not None and outstanding > start.bounds.max_outstanding:
                    found.faults.append(
                        f"after entry {entry.index} {outstanding} training tasks are outstanding, "
                        f"the window has {start.bounds.max_outstanding}"
                    )
            case Batch():
                held.difference_update(decision.seq for decision in entry.fates)
                unpublished = len(entry.groups)
            case Publish():
                unpublished = 0


def _freed_next(entries: list[AnyEntry], number: int) -> set[int] | None:
    for entry in entries[number + 1 :]:
        if isinstance(entry, Batch | End):
            return {d.seq for d in entry.fates if d.fate != "trained"}
    return None


def _check_groups(found: Audit, log: Log, state: RunState, history: _History) -> None:
    store = log.store
    listed = {seq for key in store.keys(GROUPS) if (seq := group_seq(key)) is not None}
    foreign = sorted(seq for seq in listed if seq >= state.next_seq)
    found.counts |= {"trained": len(history.trained), "ignored_objects": len(foreign)}

    def check(seq: int) -> list[str] | None:
        try:
            return list(_group_faults(store, state, history, seq))
        except FileNotFoundError:
            return None

    wanted = [seq for seq in history.trained if seq in listed or not _collectable(state, seq)]
    with ThreadPoolExecutor(_READERS, "audit") as pool:
        results = dict(zip(wanted, pool.map(check, wanted), strict=True))
    found.faults += [fault for faults in results.values() for fault in faults or ()]
    gone = [seq for seq, faults in results.items() if faults is None]
    found.counts["verified"] = len(wanted) - len(gone)
    if gone:
        state.apply_all(log.follow())  # a running learner may have raised the floor meanwhile
    found.faults += [
        f"{group_key(seq)}, trained in entry {state.fates[seq][1]}: missing, although nothing from "
        f"the floor ({state.floor}) upwards may be collected"
        for seq in gone
        if not _collectable(state, seq)
    ]


def _collectable(state: RunState, seq: int) -> bool:
    return state.fates[seq][1] < state.floor


def _group_faults(store: Store, state: RunState, history: _History, seq: int) -> Iterator[str]:
    """What is wrong with one trained group. Raises FileNotFoundError if it is not there."""
    batch, wanted = history.trained[seq]
    place = f"{group_key(seq)}, trained in entry {batch.index}"
    try:
        data = read_group(store, seq)
        if (sha256 := sha256_hex(data)) != wanted.sha256:
            yield f"{place}: sha256 {sha256[:12]}… is not the logged {wanted.sha256[:12]}…"
            return
        group = decode_group(data)
        check_group(
            group,
            history.tasks[seq],
            contract=state.start.contract.sha256,
            bounds=state.start.bounds,
            version=batch.step,
        )
    except BadObject as error:
        yield f"{place}: {error}"
        return
    reason, since = state.quarantined.get(group.sampler, ("", batch.index))
    if since < batch.index:
        yield f"{place}: made by {group.sampler!r}, which entry {since} quarantined: {reason}"
    if group.lengths != wanted.lengths:
        yield f"{place}: lengths {group.lengths} are not the logged {wanted.lengths}"
    age = 0 if group.oldest_version is None else batch.step - group.oldest_version
    if age > state.start.bounds.max_staleness:
        yield f"{place}: {age} versions old, the bound is {state.start.bounds.max_staleness}"
    used = {int(v) for rollout in group.rollouts for v in set(rollout.versions_T[rollout.mask_T])}
    unknown = sorted(v for v in used if history.published.get(v, batch.index) >= batch.index)
    if unknown:
        yield f"{place}: sampled with versions {unknown}, which no publish before it names"


def _check_adapters(found: Audit, log: Log, state: RunState) -> None:
    contents: dict[str, str] = {}
    listed = {name for key in log.store.keys(ADAPTERS) if (name := adapter_of(key))}
    run = state.start.run
    for index, ref in state.adapters:
        entry = log.entries[index]
        if adapter_origin(ref.name)[:3] != (run, entry.epoch, entry.step):
            found.faults.append(
                f"entry {index} publishes version {entry.step} of run {run!r} in epoch "
                f"{entry.epoch}, but its adapter is named {ref.name}"
            )
        if contents.setdefault(ref.name, ref.sha256) != ref.sha256:
            found.faults.append(f"entry {index}: adapter {ref.name} has had other files before")
    latest: dict[str, tuple[int, AdapterRef]] = {ref.name: (i, ref) for i, ref in state.adapters}
    for name, (index, ref) in latest.items():
        if name not in listed and index < state.floor:
            continue
        try:
            read_adapter(log.store, ref)
        except BadObject as error:
            found.faults.append(f"entry {index}: {error}")
    foreign = sorted(name for name in listed if adapter_origin(name)[0] != run)
    if foreign:
        found.faults.append(f"adapters of other runs share this bus: {foreign[:5]}")
    found.counts["adapters"] = len(latest)


def main(argv: list[str] | None = None) -> int:
    """The program; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m jax_t2sql.bus.audit",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("bus", help="directory or URL of the bus, usually WORKDIR/bus")
    bus = parser.parse_args(argv).bus
    try:
        result = audit(open_store(bus, create=False))
    except (UserError, StoreAway) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UserError) else os.EX_TEMPFAIL
    for fault in result.faults[:_SHOWN]:
        print(f"fault: {fault}")
    if len(result.faults) > _SHOWN:
        print(f"and {len(result.faults) - _SHOWN} faults more")
    counts = ", ".join(f"{number} {name}" for name, number in result.counts.items())
    verdict = "sound" if result.sound else f"{len(result.faults)} faults"
    print(f"{verdict}: {counts}")
    return 0 if result.sound else 1


if __name__ == "__main__":
    sys.exit(main())
