"""What the entries of a log mean, folded into one state. Learner and samplers use the same fold.

Replaying entries decides nothing: every decision stands in an entry, and an entry that contradicts
those before it is refused, before it is written (by a learner with a fault) as well as after.
"""

from collections.abc import Iterable

from jax_t2sql.bus.entries import (
    FORMAT,
    AdapterRef,
    AnyEntry,
    Batch,
    Decision,
    End,
    Fate,
    Issue,
    Publish,
    Start,
    Takeover,
    Task,
)
from jax_t2sql.bus.faults import LogError


class RunState:
    """The run after the entries applied so far.

    epoch: index of the entry by which the present learner leads.
    version: batches applied. open_batch: the batch entry not yet concluded by a publish.
    open_tasks: seq to its latest offer, in order of seq, for all tasks without a fate.
    fates: seq to (fate, index of the entry that holds it).
    adapters: (index of the publish entry, adapter), oldest first; names may repeat.
    quarantined: sampler to (reason, index of the publish entry).
    """

    def __init__(self):
        self.start: Start | None = None
        self.epoch = 0
        self.version = 0
        self.open_batch: Batch | None = None
        self.next_seq = 0
        self.open_tasks: dict[int, Task] = {}
        self.fates: dict[int, tuple[Fate, int]] = {}
        self.cursor: dict | None = None
        self.adapters: list[tuple[int, AdapterRef]] = []
        self.last_publish: Publish | None = None
        self.quarantined: dict[str, tuple[str, int]] = {}
        self.end: End | None = None

    @property
    def floor(self) -> int:
        return self.last_publish.floor if self.last_publish else 0

    def apply_all(self, entries: Iterable[AnyEntry]) -> None:
        for entry in entries:
            self.apply(entry)

    def apply(self, entry: AnyEntry) -> None:
        """Raises LogError, and changes nothing, if `check` refuses the entry."""
        self.check(entry)
        match entry:
            case Start():
                self.start = entry
            case Takeover():
                self.epoch = entry.epoch
            case Issue():
                self.open_tasks.update((task.seq, task) for task in entry.tasks)
                self.next_seq = max([self.next_seq, *(task.seq + 1 for task in entry.tasks)])
                self.cursor = entry.cursor
            case Batch():
                self.open_batch = entry
                self._decide(entry.index, entry.fates)
            case Publish():
                self.version = entry.step
                self.open_batch = None
                self.last_publish = entry
                if entry.adapter is not None:
                    self.adapters.append((entry.index, entry.adapter))
                for quarantine in entry.quarantined:
                    self.quarantined[quarantine.sampler] = (quarantine.reason, entry.index)
            case End():
                self.end = entry
                self._decide(entry.index, entry.fates)

    def check(self, entry: AnyEntry) -> None:
        """Would `entry` be a sound next one? Raises LogError saying why not."""
        fault = self._fault(entry)
        if fault:
            raise LogError(
                f"log entry {entry.index} ({type(entry).__name__.lower()}) {fault}; "
                "the log was written by a faulty or foreign program"
            )

    def _fault(self, entry: AnyEntry) -> str | None:
        if (self.start is None) != isinstance(entry, Start):
            return "must not be there: a log begins with its one start entry"
        if self.end is not None:
            return "follows the end of the run"
        leads = isinstance(entry, Start | Takeover)
        if entry.epoch != (entry.index if leads else self.epoch):
            return f"has epoch {entry.epoch}, the learner of epoch {self.epoch} leads"
        match entry:
            case Start():
                if entry.format != FORMAT:
                    return f"has format {entry.format}, this program reads format {FORMAT}"
            case Issue():
                return self._issue_fault(entry)
            case Batch():
                return self._batch_fault(entry)
            case Publish():
                return self._publish_fault(entry)
            case End():
                missing = self.open_tasks.keys() - {decision.seq for decision in entry.fates}
                if missing:
                    return f"leaves tasks {sorted(missing)[:5]} without a fate"
                return self._fates_fault(entry.fates)
        return None

    def _issue_fault(self, entry: Issue) -> str | None:
        next_seq = self.next_seq
        for task in entry.tasks:
            if task.seq == next_seq and task.attempt == 0:
                next_seq += 1
                continue
            known = self.open_tasks.get(task.seq)
            if known is None or task.attempt != known.attempt + 1:
                return (
                    f"offers task {task.seq} attempt {task.attempt}; expected new task {next_seq} "
                    "or the next attempt of an open one"
                )
        seqs = [task.seq for task in entry.tasks]
        return "offers a task twice" if len(set(seqs)) != len(seqs) else None

    def _batch_fault(self, entry: Batch) -> str | None:
        if self.open_batch is not None:
            return f"follows batch {self.open_batch.index}, which no publish has concluded"
        if entry.step != self.version:
            return f"is for version {entry.step}, the run is at {self.version}"
        trained = [d.seq for d in entry.fates if d.fate == "trained"]
        if not entry.groups or sorted(group.seq for group in entry.groups) != sorted(trained):
            return "does not give exactly its own groups (at least one) the fate trained"
        for decision in entry.fates:
            if decision.fate == "trained" and decision.sampler in self.quarantined:
                index = self.quarantined[decision.sampler][1]
                return (
                    f"trains task {decision.seq} of sampler {decision.sampler!r}, which entry "
                    f"{index} has quarantined"
                )
        return self._fates_fault(entry.fates)

    def _publish_fault(self, entry: Publish) -> str | None:
        opened = self.open_batch.index if self.open_batch else None
        if entry.batch != opened:
            return f"concludes batch {entry.batch}, the open one is {opened}"
        step = self.version + (opened is not None and entry.applied)
        if entry.step != step:
            return f"publishes version {entry.step}, expected {step}"
        if not self.floor <= entry.floor <= entry.index:
            return f"has floor {entry.floor} outside {self.floor}..{entry.index}"
        names = [quarantine.sampler for quarantine in entry.quarantined]
        if len({*names, *self.quarantined}) < len(names) + len(self.quarantined):
            return f"quarantines a sampler again (of {names})"
        return None

    def _fates_fault(self, fates: Iterable[Decision]) -> str | None:
        seen = set()
        for decision in fates:
            if decision.seq in seen or decision.seq not in self.open_tasks:
                known = self.fates.get(decision.seq, ("none: it was never issued",))[0]
                return f"decides task {decision.seq} again or unasked (fate so far: {known})"
            seen.add(decision.seq)
        return None

    def _decide(self, index: int, fates: Iterable[Decision]) -> None:
        for decision in fates:
            del self.open_tasks[decision.seq]
            self.fates[decision.seq] = (decision.fate, index)
