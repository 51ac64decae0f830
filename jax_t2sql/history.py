"""What the log says of every question's visits and every step's rollouts.

A fold over entries like `jax_t2sql.bus.RunState`: what it holds follows from the log alone, so all
that rests on it (which questions are drawn, which get a hint, when a run is stopped) comes out the
same after a restart.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from jax_t2sql.bus import Batch, Decision, End, Issue, Outcome, Task
from jax_t2sql.bus.entries import AnyEntry


@dataclass(frozen=True)
class Visit:
    """One group of a question, without a hint.

    Attributes:
      seq: of its task.
      step: version of the weights when its fate was logged.
      outcome: its rollouts, counted.
    """

    seq: int
    step: int
    outcome: Outcome


@dataclass
class History:
    """The log so far; `follow` takes in what is new.

    Attributes:
      visits: of each question, in the order in which their fates were logged.
      order: (question, visit) of all of them in that order.
      steps: of each batch entry, the version it changed and the outcomes logged with it, hinted
        groups' too.
      failed: seq to question of groups without a hint of which no rollout was right, and which
        were not offered again.
      answered: seqs of those that were, with a hint; perhaps before their fate was logged.
    """

    visits: dict[str, list[Visit]] = field(default_factory=dict)
    order: list[tuple[str, Visit]] = field(default_factory=list)
    steps: list[tuple[int, list[Outcome]]] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)
    answered: set[int] = field(default_factory=set)
    _tasks: dict[int, Task] = field(default_factory=dict)
    _read: int = 0

    def follow(self, entries: Sequence[AnyEntry]) -> None:
        """Takes in all entries of a log that were not there before."""
        new, self._read = entries[self._read :], len(entries)
        for entry in new:
            self.apply(entry)

    def apply(self, entry: AnyEntry) -> None:
        """Takes in the next entry."""
        match entry:
            case Issue():
                self._tasks.update((task.seq, task) for task in entry.tasks)
                origins = [task.origin for task in entry.tasks if task.origin is not None]
                self.answered.update(origins)
                for seq in origins:
                    self.failed.pop(seq, None)
            case Batch():
                self.steps.append((entry.step, self._decide(entry.fates, entry.step)))
            case End():
                self._decide(entry.fates, self.steps[-1][0] if self.steps else 0)

    def unanswered(self, decided: Iterable[Decision] = ()) -> list[tuple[int, str]]:
        """(seq, question) of groups without a right rollout that got no hint so far, oldest first.

        Args:
          decided: fates that no entry holds yet.
        """
        found = dict(self.failed)
        for decision in decided:
            task = self._tasks[decision.seq]
            if is_failure(task, decision):
                found[task.seq] = task.problem
        return sorted((seq, name) for seq, name in found.items() if seq not in self.answered)

    def _decide(self, fates: Iterable[Decision], step: int) -> list[Outcome]:
        outcomes = []
        for decision in fates:
            task = self._tasks.pop(decision.seq)
            if decision.outcome is None or task.kind == "eval":
                continue
            outcomes.append(decision.outcome)
            if task.kind == "train":
                visit = Visit(task.seq, step, decision.outcome)
                self.visits.setdefault(task.problem, []).append(visit)
                self.order.append((task.problem, visit))
            if is_failure(task, decision) and task.seq not in self.answered:
                self.failed[task.seq] = task.problem
        return outcomes


def is_failure(task: Task, decision: Decision) -> bool:
    """Whether no rollout of a question, put as it is, was right.

    What failed without the question's own evidence says nothing about the question.
    """
    outcome = decision.outcome
    if task.kind != "train" or outcome is None or not outcome.plain:
        return False
    return outcome.valid > 0 and outcome.solved == 0
