"""How many tasks may be out at once, and which are: the learner's issuing end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jax_t2sql.bus.entries import Issue, Kind, Task
from jax_t2sql.bus.intake import Intake
from jax_t2sql.bus.leading import Leader
from jax_t2sql.bus.log import Log
from jax_t2sql.bus.state import RunState


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


class Window(Leader):
    """Outstanding tasks of a run; training and eval tasks have places of their own."""

    def __init__(self, log: Log, state: RunState):
        super().__init__(log, state)
        self._intake = Intake(log.store, state)
        self._offered: dict[int, int] = {}  # seq to the version then; unknown after a restart

    @property
    def capacity(self) -> int:
        """How many training tasks may be issued now: (k+1)·B less those without a place.

        A trained group holds its place until its publish; every other fate frees it at once.
        """
        unpublished = len(self.state.open_batch.groups) if self.state.open_batch else 0
        held = sum(task.kind != "eval" for task in self._intake.undecided())
        return self.state.start.bounds.max_outstanding - held - unpublished

    @property
    def in_flight(self) -> int:
        """Training tasks that no group has come for yet."""
        return sum(task.kind != "eval" for task in self._waiting())

    @property
    def at_risk(self) -> int:
        """Of those in flight, how many one more update makes too old, if begun when offered."""
        oldest = self.version - self.state.start.bounds.max_staleness
        return sum(
            task.kind != "eval" and self._offered.get(task.seq, 0) <= oldest
            for task in self._waiting()
        )

    @property
    def eval_capacity(self) -> int:
        """How many eval tasks may be issued now."""
        held = sum(task.kind == "eval" for task in self._intake.undecided())
        return self.state.start.bounds.max_eval_tasks - held

    def undecided_evals(self) -> list[int]:
        """Seqs of the eval tasks without a fate. No longer waited for, their fate is "unused"."""
        return [task.seq for task in self._intake.undecided() if task.kind == "eval"]

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
        self.append_entry(Issue, tasks=numbered, cursor=cursor)
        self._offered = {s: v for s, v in self._offered.items() if s in self.state.open_tasks}
        self._offered.update((task.seq, self.version) for task in numbered)
        return numbered

    def _waiting(self) -> Iterator[Task]:
        """Undecided tasks without a group."""
        return (t for t in self._intake.undecided() if t.seq not in self._intake.ready)
