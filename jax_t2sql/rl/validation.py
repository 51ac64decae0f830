"""Held-out questions answered by the fleet, while training goes on.

The tasks pin the adapter of the version that is judged and are greedy; they have credits of their
own, so a few are under way at a time and training hardly slows. What has not come when the next
evaluation is due stays unanswered: that evaluation is recorded with what it has, and judges no
best version.
"""

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jax_t2sql.bus import Group, NewTask
from jax_t2sql.evaluation import Answer, unanswered
from jax_t2sql.groups import CORRECT
from jax_t2sql.prompt_builder import PromptBuilder
from jax_t2sql.rl.loop import Loop
from jax_t2sql.text2sql import Problem

_NEVER = 2**31 - 1


@dataclass
class Evaluation:
    """One version's questions and the answers so far.

    Attributes:
      adapter: pinned by the tasks.
      deadline: version after which nobody waits.
      done: called with the answers, in the order of the questions, those that came.
    """

    version: int
    adapter: str
    problems: Sequence[Problem]
    deadline: int
    done: Callable[[list[Answer]], None]
    answers: dict[str, Answer] = field(default_factory=dict)
    waiting: dict[int, Problem] = field(default_factory=dict)
    todo: deque[Problem] = field(default_factory=deque)

    @property
    def complete(self) -> bool:
        """Whether every question is decided."""
        return not self.todo and not self.waiting


class FleetValidation:
    """Evaluations in turn; `work` is to be called at every look at the bus."""

    def __init__(self, prompts: PromptBuilder):
        self._prompts = prompts
        self._queue: deque[Evaluation] = deque()

    @property
    def adapters(self) -> list[str]:
        """Names that must not be collected."""
        return list(dict.fromkeys(evaluation.adapter for evaluation in self._queue))

    @property
    def left(self) -> int:
        """Questions still to be decided."""
        return sum(len(e.todo) + len(e.waiting) for e in self._queue)

    def begin(
        self,
        loop: Loop,
        version: int,
        problems: Sequence[Problem],
        done: Callable[[list[Answer]], None],
        *,
        deadline: int = _NEVER,
    ) -> bool:
        """Queues the questions for a version; False if its adapter was not published."""
        name = published_adapter(loop, version)
        if name is None:
            return False
        evaluation = Evaluation(version, name, problems, deadline, done)
        fitting, too_long = self._prompts.split_by_length(problems)
        evaluation.todo.extend(fitting)
        for problem, reason in too_long:
            evaluation.answers[problem.question_id] = unanswered(problem, reason)
        self._queue.append(evaluation)
        return True

    def work(self, loop: Loop) -> None:
        """Takes in answers, gives up what is overdue, issues what there are credits for."""
        known = {seq: e for e in self._queue for seq in e.waiting}
        bus = loop.bus
        if not self._queue and not bus.undecided_evals():
            return
        for ready in bus.ready_evals():
            seq, evaluation = ready.task.seq, known.get(ready.task.seq)
            if evaluation is not None:
                problem = evaluation.waiting.pop(seq)
                evaluation.answers[problem.question_id] = _answer(problem, ready.group)
            bus.decide(seq, "unused", reason="an answer in an evaluation")
        for evaluation in self._queue:
            if loop.version > evaluation.deadline:
                evaluation.todo.clear()
        for seq in bus.undecided_evals():
            evaluation = known.get(seq)
            if evaluation is None or loop.version > evaluation.deadline:
                bus.decide(seq, "unused", reason="nobody waits for this evaluation any more")
        for evaluation in self._queue:  # fates of other kinds come from the bus: failed, corrupt
            gone = evaluation.waiting.keys() - set(bus.undecided_evals())
            for seq in gone:
                del evaluation.waiting[seq]
        self._issue(loop)
        while self._queue and self._queue[0].complete:
            evaluation = self._queue.popleft()
            answers = [evaluation.answers.get(p.question_id) for p in evaluation.problems]
            evaluation.done([answer for answer in answers if answer is not None])

    def _issue(self, loop: Loop) -> None:
        bus = loop.bus
        tasks, owners = [], []
        for evaluation in self._queue:
            while evaluation.todo and len(tasks) < bus.eval_capacity:
                problem = evaluation.todo.popleft()
                owners.append((evaluation, problem))
                tasks.append(
                    NewTask(
                        problem=problem.question_id,
                        group_size=1,
                        seed=0,
                        kind="eval",
                        adapter=evaluation.adapter,
                        deadline=evaluation.deadline,
                    )
                )
        if tasks:
            cursor = loop.feed.source.state()
            for task, (evaluation, problem) in zip(
                bus.issue(tasks, cursor=cursor), owners, strict=True
            ):
                evaluation.waiting[task.seq] = problem


def published_adapter(loop: Loop, version: int) -> str | None:
    """Name of the adapter last published for a version; None if that had no files."""
    entries = loop.bus.log.entries
    names = [ref.name for index, ref in loop.bus.state.adapters if entries[index].step == version]
    return names[-1] if names else None


def _answer(problem: Problem, group: Group) -> Answer:
    """An answer as the sampler graded it."""
    rollout = group.rollouts[0]
    correct = rollout.valid and rollout.terms.get(CORRECT, 0.0) == 1.0
    try:
        record = json.loads(rollout.trace)
    except ValueError:  # text for people: a sampler may leave it out
        record = {}
    if not isinstance(record, dict):
        record = {}
    outcome = str(record.get("verdict", rollout.ending))
    return Answer(problem, correct, outcome, record | {"correct": correct})
