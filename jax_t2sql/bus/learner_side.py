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

from collections.abc import Iterator, Sequence
from pathlib import Path

from jax_t2sql.bus.adapters import put_adapter
from jax_t2sql.bus.entries import (
    AnyEntry,
    Batch,
    BatchGroup,
    Decision,
    End,
    Fate,
    Publish,
    Quarantine,
)
from jax_t2sql.bus.intake import ReadyGroup
from jax_t2sql.bus.leases import Leases
from jax_t2sql.bus.log import Log
from jax_t2sql.bus.replay import ReplayStep, entries_after, replay
from jax_t2sql.bus.state import RunState


class LearnerBus(Leases):
    """Made by `start_or_takeover`; its docstring and the module's say how it is used.

    Every method that appends may raise LostLeadership, after which the object must not be used
    again. `state` is the run as the log has it, `log` the log itself.
    """

    def __init__(self, log: Log, state: RunState):
        super().__init__(log, state)
        self._published = False  # by this learner: its weights are the version's
        self._suspects: dict[str, Quarantine] = {}

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

    def quarantine(self, sampler: str, *, reason: str) -> None:
        """No group of this sampler is trained on after the next publish, which says so.

        Its groups become "invalid", those included that have arrived; what it holds is offered
        again (see `expire_claims`), and it stops when it reads of it. Lost with the process until
        then. One that is quarantined already stays so.
        """
        if sampler not in self.state.quarantined:
            self._suspects[sampler] = Quarantine(sampler=sampler, reason=reason)

    def length_ratio(self, groups: Sequence[ReadyGroup]) -> float:
        """What a batch of these groups would log as its `length_ratio`."""
        return self._intake.length_ratio(groups)

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
        entry = self.append_entry(
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
        entry = self.append_entry(
            Publish,
            step=step,
            batch=opened.index if opened else None,
            applied=applied,
            adapter=adapter,
            floor=self.state.floor if floor is None else floor,
            keep=tuple(keep),
            quarantined=tuple(self._suspects.values()),
        )
        self._published = True
        if self._suspects:
            self._suspects.clear()
            self._intake.drop_quarantined()
        return entry

    def end(self, *, reason: str, final: str | None = None, best: str | None = None) -> End:
        """End the run. Every task without a fate gets "unused".

        final, best: adapter names. Raises ValueError while a batch is not published.
        """
        if self.state.open_batch is not None:
            raise ValueError(f"batch {self.state.open_batch.index} is not published: publish first")
        unused = (Decision(seq=task.seq, fate="unused") for task in self._intake.undecided())
        return self.append_entry(
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
