"""What the loop works with, what a step was, and where others hang themselves in."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from jax_t2sql.bus import Batch, Group, LearnerBus, ReadyGroup
from jax_t2sql.rl.agreement import Agreement
from jax_t2sql.rl.tasks import Feed
from jax_t2sql.rl.trainer import Trainer


@dataclass(frozen=True)
class Step:
    """One update.

    Attributes:
      version: updates applied, this one included if it was.
      applied: False if its gradient was not finite.
      metrics: for the record; hooks may add to them.
      batch: its entry in the log.
      trained: the groups of the update, in the order of `batch`.
      fresh: all groups that arrived since the step before, those without signal too. In a replay
        only what was trained is known, and these are the same.
      replayed: trained again after a restart, as the log has it.
      agreement: of each sampler of the groups with the learner, where there was anything to tell.
    """

    version: int
    applied: bool
    metrics: dict[str, Any]
    batch: Batch
    trained: Sequence[Group]
    fresh: Sequence[Group]
    replayed: bool = False
    agreement: Mapping[str, Agreement] = field(default_factory=dict)


@dataclass
class Hooks:
    """Functions called in order; any may call `loop.stop`.

    Attributes:
      after_step: after each update, before it is published; replayed ones too.
      after_publish: when a version is on disk where due, and served.
      after_evaluation: with the version and its metrics (`eval_accuracy`, `eval_n`, …).
    """

    after_step: list[Callable[["Loop", Step], None]] = field(default_factory=list)
    after_publish: list[Callable[["Loop"], None]] = field(default_factory=list)
    after_evaluation: list[Callable[["Loop", int, dict], None]] = field(default_factory=list)


class Sampling(Protocol):
    """Where groups come from: this process, or a fleet of others."""

    def room(self, loop: "Loop") -> int:
        """How many tasks to issue now, should the bus have a place for as many."""

    def work(self, loop: "Loop") -> list[Group]:
        """Samples what is open, or waits a moment for those who do. Groups made here."""

    def choose(self, loop: "Loop", ready: Sequence[ReadyGroup]) -> Sequence[ReadyGroup]:
        """Those of the groups with a signal to train on now, in this order; none to wait."""

    def files_due(self, loop: "Loop") -> bool:
        """Whether the present version is to be published as files, checkpoint or not."""

    def serve(self, loop: "Loop") -> None:
        """The state has changed, and its version is published."""

    def metrics(self, loop: "Loop", batch: Batch) -> dict[str, float]:
        """What there is to say of the sampling for the step of `batch`."""


@dataclass(kw_only=True)
class Loop(Trainer):
    """The run that leads: `Trainer`'s parts, the bus, and what stands around an update.

    Attributes:
      bus: host 0's end of it.
      keep: names of adapters that garbage collection must spare now.
      stopped: why the loop ends before its last step; "" if it does not.
      positions: log indices of the checkpoints that this process made and keeps.
      seen: open tasks whose groups have been looked at.
    """

    bus: LearnerBus
    feed: Feed
    sampling: Sampling
    hooks: Hooks = field(default_factory=Hooks)
    keep: Callable[[], Sequence[str]] = tuple
    stopped: str = ""
    positions: list[int] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def stop(self, reason: str) -> None:
        """Ends the loop after the present step; the first reason stays."""
        self.stopped = self.stopped or reason
