"""The learner's end of the bus: the only writer of the log.

One step of a trainer, and what a kill at each point leaves behind:

1. ``issue(tasks, cursor=…)``. Killed after: the tasks are open and will be sampled; the cursor in
   the log, not the checkpoint's, says where the question stream goes on (`state.cursor`).
2. Samplers put groups; ``ready_groups()`` gives those that may be trained on, oldest task first.
   Bad and stale ones get their fate on the way; ``decide(seq, "zero-signal")`` gives others theirs.
   Killed after: those fates are not in the log yet, so they are found again the same way.
3. ``append_batch(groups, pack_seed=…)`` writes the groups, their order and all fates decided since
   the last batch. From here on the batch counts as trained, whatever happens.
   Killed after: the restart trains it (see below).
4. The update; every K steps the trainer's checkpoint, which stores `position` of this moment.
5. ``publish(directory)`` concludes the batch: the version is now one higher, samplers advance.

A restart is: `start_or_takeover`, restore the newest checkpoint, then ::

    for step in bus.replay(checkpoint.log_position):    # None without a checkpoint
        state = train(state, step.groups, seed=step.batch.pack_seed)
    bus.publish(directory)

`replay` yields the batches logged after the checkpoint, in order, with their groups fetched again
and compared with the sha256 in the log. Batches whose update was skipped are left out; a last one
without a publish is included, undecided. The publish after it concludes that batch if it is open,
and else publishes the present version again: replayed weights may differ in the last bit from those
first published under that version, so they get a name of their own (with the new epoch). No batch
may be appended before; a new run begins with the same call, which publishes version 0. A checkpoint
made between 3 and 5 already holds its batch: nothing to replay, and the same publish concludes it,
with ``applied=False`` if the checkpoint says that its update was skipped.

Tasks that a sampler inside the dead learner had claimed but not delivered are offered again, as the
next attempt, by `start_or_takeover` itself. Other samplers' claims live on; `expire_claims` ends
those whose heartbeat stands still.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jax_t2sql.bus.adapters import put_adapter
from jax_t2sql.bus.claims import Claim, ClaimWatch
from jax_t2sql.bus.contract import Bounds, Contract
from jax_t2sql.bus.entries import (
    AnyEntry,
    Batch,
    BatchGroup,
    Decision,
    End,
    Fate,
    Issue,
    Kind,
    Publish,
    Start,
    Takeover,
    Task,
)
from jax_t2sql.bus.faults import LostLeadership
from jax_t2sql.bus.intake import Intake, ReadyGroup
from jax_t2sql.bus.keys import check_name
from jax_t2sql.bus.log import Log
from jax_t2sql.bus.offers import holders, next_attempts, orphans, undelivered
from jax_t2sql.bus.replay import ReplayStep, entries_after, replay
from jax_t2sql.bus.samplers import read_heartbeats
from jax_t2sql.bus.startup import read_run
from jax_t2sql.bus.state import RunState
from jax_t2sql.bus.store import Store


@dataclass(frozen=True, kw_only=True)
class NewTask:
    """A task to issue; see `bus.entries.Task`. The bus gives it its seq."""

    problem: str
    group_size: int
    seed: int
    kind: Kind = "train"
    adapter: str | None = None
    deadline: int | None = None
    origin: int | None = None


def start_or_takeover(
    store: Store,
    *,
    run: str,
    contract: Contract,
    bounds: Bounds,
    learner: str,
    config: dict[str, Any] | None = None,
    parent: str | None = None,
) -> "LearnerBus":
    """Begin the run if the log is empty, else take it over.

    learner: who this is, for people reading the log (host and process id).
    config, parent: for the start entry; see there.

    Raises:
        ContractError: the log was started with another contract, bounds or run name.
        RunEnded: the log has an end entry.
        LogError: the log is damaged.
        LostLeadership: another learner started or took over at the same moment.
    """
    check_name(run)
    log, state = read_run(store, run=run, contract=contract, bounds=bounds)
    bus = LearnerBus(log, state)
    if state.start is None:
        bus._append(
            Start,
            epoch=0,
            run=run,
            learner=learner,
            contract=contract,
            bounds=bounds,
            config=config or {},
            parent=parent,
        )
    else:
        bus._append(Takeover, epoch=log.head + 1, learner=learner)
        claims = holders(store, undelivered(store, state))
        bus._offer_again(orphans(claims, epoch=bus.epoch))
    return bus


class LearnerBus:
    """Made by `start_or_takeover`; its docstring and the module's say how it is used.

    Every method that appends may raise LostLeadership, after which the object must not be used
    again. `state` is the run as the log has it, `log` the log itself.
    """

    def __init__(self, log: Log, state: RunState):
        self.log = log
        self.state = state
        self.store = log.store
        self._intake = Intake(log.store, state)
        self._watch = ClaimWatch()
        self._claims: dict[int, Claim] = {}
        self._published = False  # by this learner: its weights are the version's
        self._lost = False

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def version(self) -> int:
        """Batches applied, as far as the log knows."""
        return self.state.version

    @property
    def position(self) -> tuple[int, str]:
        """(index, sha256) of the last entry: what a checkpoint made now has to store."""
        return self.log.head, self.log.head_sha

    @property
    def capacity(self) -> int:
        """How many training tasks may be issued now: (k+1)·B less those without a place.

        A trained group holds its place until its publish; every other fate frees it at once.
        """
        unpublished = len(self.state.open_batch.groups) if self.state.open_batch else 0
        held = sum(task.kind != "eval" for task in self._intake.undecided())
        return self.state.start.bounds.max_outstanding - held - unpublished

    @property
    def eval_capacity(self) -> int:
        """How many eval tasks may be issued now."""
        held = sum(task.kind == "eval" for task in self._intake.undecided())
        return self.state.start.bounds.max_eval_tasks - held

    def overdue_evals(self) -> list[int]:
        """Seqs of undecided eval tasks whose deadline has passed; the usual fate is "unused"."""
        return [
            t.seq
            for t in self._intake.undecided()
            if t.kind == "eval" and t.deadline < self.version
        ]

    def issue(self, tasks: Sequence[NewTask], *, cursor: dict[str, Any]) -> tuple[Task, ...]:
        """Offer tasks; returns them with their seqs.

        Raises:
            ValueError: more than `capacity` or `eval_capacity`.
        """
        first = self.state.next_seq
        numbered = tuple(
            Task(
                seq=first + number,
                problem=task.problem,
                group_size=task.group_size,
                kind=task.kind,
                seed=task.seed,
                adapter=task.adapter,
                deadline=task.deadline,
                origin=task.origin,
            )
            for number, task in enumerate(tasks)
        )
        evals = sum(task.kind == "eval" for task in numbered)
        for count, capacity, what in (
            (len(numbered) - evals, self.capacity, "training"),
            (evals, self.eval_capacity, "eval"),
        ):
            if count > max(capacity, 0):
                raise ValueError(
                    f"{count} {what} tasks, but only {capacity} may be issued now: decide or train "
                    "outstanding ones first"
                )
        self._append(Issue, tasks=numbered, cursor=cursor)
        return numbered

    def ready_groups(self) -> list[ReadyGroup]:
        """All groups that may be trained on now, oldest task first; nothing waits for more.

        Reads what arrived. Groups that are corrupt, invalid or staler than the bound get that fate
        here (see `decided` for the reasons).
        """
        self._intake.fetch()
        self._intake.drop_stale()
        return self._intake.of_kinds("train", "hinted")

    def ready_evals(self) -> list[ReadyGroup]:
        """Eval groups that arrived, not yet decided. Once scored, their fate is "unused"."""
        self._intake.fetch()
        return self._intake.of_kinds("eval")

    @property
    def decided(self) -> tuple[Decision, ...]:
        """Fates that the next batch (or the end) will record."""
        return tuple(self._intake.decided.values())

    def decide(self, seq: int, fate: Fate, *, reason: str = "") -> None:
        """Give an open task a fate other than "trained"; it frees its place at once.

        Raises:
            ValueError: the task is not open, or has a fate already.
        """
        if fate == "trained":
            raise ValueError("only append_batch gives the fate 'trained'")
        self._intake.decide(seq, fate, reason=reason)

    def append_batch(self, groups: Sequence[ReadyGroup], *, pack_seed: int) -> Batch:
        """Log the groups of the next update, in this order. Train only after this returned.

        Raises:
            ValueError: no group, a group twice, one that is decided, too stale, or an eval group;
                or the last batch, or the replay after a takeover, was not published.
        """
        if self.state.open_batch is not None or not self._published:
            raise ValueError("publish first: the last batch, or the restored weights, are not out")
        self._intake.check_batch(groups)
        trained = (
            Decision(
                seq=r.task.seq,
                fate="trained",
                sampler=r.group.sampler,
                outcome=r.group.outcome,
            )
            for r in groups
        )
        entry = self._append(
            Batch,
            step=self.version,
            groups=tuple(
                BatchGroup(seq=r.task.seq, sha256=r.sha256, lengths=r.group.lengths) for r in groups
            ),
            pack_seed=pack_seed,
            fates=(*trained, *self.decided),
            length_ratio=self._intake.length_ratio(groups),
        )
        self._intake.batch_logged(groups)
        return entry

    def publish(
        self,
        directory: Path | None = None,
        *,
        applied: bool = True,
        floor: int | None = None,
        keep: Sequence[str] = (),
    ) -> Publish:
        """Conclude the open batch, if there is one, and publish the weights as they are now.

        directory: the adapter's files; None where samplers get the weights another way.
        applied: False if the open batch's update was skipped.
        floor, keep: see `bus.entries.Publish`; None leaves the floor where it is.
        """
        opened = self.state.open_batch
        step = self.version + (opened is not None and applied)
        adapter = None
        if directory is not None:
            run = self.state.start.run
            adapter = put_adapter(self.store, directory, run=run, epoch=self.epoch, step=step)
        entry = self._append(
            Publish,
            step=step,
            batch=opened.index if opened else None,
            applied=applied,
            adapter=adapter,
            floor=self.state.floor if floor is None else floor,
            keep=tuple(keep),
        )
        self._published = True
        return entry

    def end(self, *, reason: str, final: str | None = None, best: str | None = None) -> End:
        """End the run. Every task without a fate gets "unused".

        final, best: adapter names. Raises ValueError while a batch is not published.
        """
        if self.state.open_batch is not None:
            raise ValueError(f"batch {self.state.open_batch.index} is not published: publish first")
        unused = (Decision(seq=task.seq, fate="unused") for task in self._intake.undecided())
        return self._append(
            End, reason=reason, final=final, best=best, fates=(*self.decided, *unused)
        )

    def replay(self, position: tuple[int, str] | None) -> Iterator[ReplayStep]:
        """The batches logged after a checkpoint's `position`, to be trained again in this order.

        position: None for the beginning of the run. Groups are fetched one batch at a time.

        Raises:
            LogError: the position is not in this log, lies below the floor, or a group is gone.
        """
        return replay(self.log, position, floor=self.state.floor)

    def entries_after(self, position: tuple[int, str] | None) -> list[AnyEntry]:
        """The entries after a checkpoint's `position` (None: all of them). Raises LogError."""
        return entries_after(self.log, position, floor=self.state.floor)

    def expire_claims(
        self, *, still_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> tuple[Task, ...]:
        """Offer again what dead samplers hold; returns the new offers. To be called every step.

        Dead is a sampler process whose heartbeat has not moved for `still_seconds`, and a sampler
        inside an earlier learner (it may have claimed after this one took over). One inside this
        learner never is. What a living process claimed but no longer names among what it holds, it
        gave up: that is offered again as well. After the last attempt the fate is "failed".
        """
        waiting = (t for t in self._intake.undecided() if t.seq not in self._intake.ready)
        heartbeats = read_heartbeats(self.store)
        claims = self._claims = holders(self.store, waiting, self._claims, heartbeats)
        processes = {seq: claim for seq, claim in claims.items() if claim.learner_epoch is None}
        dead = self._watch.stalled(processes, heartbeats, now=clock(), still_seconds=still_seconds)
        lost = [*orphans(claims, epoch=self.epoch), *dead]
        if lost:  # a group may have come since the last look
            waiting = {task.seq for task in undelivered(self.store, self.state)}
            lost = [seq for seq in lost if seq in waiting]
        return self._offer_again(lost)

    def _offer_again(self, seqs: Sequence[int]) -> tuple[Task, ...]:
        again, exhausted = next_attempts(self.state, seqs)
        for seq in exhausted:
            self._intake.decide(seq, "failed", reason="no group after the last attempt")
        if again:
            self._append(Issue, tasks=again, cursor=self.state.cursor)
        return again

    def _append(self, kind: type[AnyEntry], **fields: Any) -> AnyEntry:
        if self._lost:
            raise LostLeadership("this learner has lost the run to another one; it must exit")
        fields.setdefault("epoch", self.epoch)

        def make(**chain: Any) -> AnyEntry:
            entry = kind(**chain, **fields)
            self.state.check(entry)
            return entry

        try:
            entry = self.log.append(make)
        except LostLeadership:
            self._lost = True
            raise
        self.state.apply(entry)
        return entry
