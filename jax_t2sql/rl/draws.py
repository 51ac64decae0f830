"""Which questions are asked: the stream, or draws by expected signal; and hints where all failed.

A group without a right rollout is offered again once, with a hint if its question has one, before
new questions are drawn. Which groups those are and how questions fared follows from the log (and
from fates that the learner has decided and not logged yet, which a restart decides alike); the
cursor says how much was drawn. So a resumed run goes on with the tasks that it would have had.
"""

from typing import Any

from data_pipelines.learnability import WeightedQuestions
from data_pipelines.questions import QuestionStream
from jax_t2sql.assembly import Run
from jax_t2sql.bus import LearnerBus, NewTask
from jax_t2sql.history import History
from jax_t2sql.rollouts import rollout_seed
from jax_t2sql.text2sql import Problem


class Draws:
    """A `TaskSource` over the run's training questions."""

    def __init__(self, run: Run, bus: LearnerBus, history: History):
        self._config, self._hints, self._bus, self._history = run.config, run.hints, bus, history
        questions, learnability = run.questions, run.config.learnability
        self._problems = {problem.question_id: problem for problem in questions.train}
        self._weighted = self._stream = None
        if learnability.enabled:
            self._weighted = WeightedQuestions(
                questions.train,
                seed=run.config.seed,
                floor=learnability.floor,
                memory=learnability.memory,
                shares=questions.shares,
            )
        else:
            self._stream = QuestionStream(
                questions.train, seed=run.config.seed, shares=questions.shares
            )
        self._observed = 0  # visits of the history

    def draw(self, count: int, *, first_seq: int) -> list[NewTask]:
        self._history.follow(self._bus.log.entries)
        asked: list[tuple[str, int | None]] = []
        if self._hints is not None:
            offers = self._history.unanswered(self._bus.decided)
            asked = [(name, seq) for seq, name in offers if self._has_hint(name)][:count]
        asked += [(p.question_id, None) for p in self._new(count - len(asked))]
        return [
            NewTask(
                problem=name,
                group_size=self._config.rl.group_size,
                seed=rollout_seed(self._config.seed, first_seq + number),
                kind="train" if origin is None else "hinted",
                origin=origin,
            )
            for number, (name, origin) in enumerate(asked)
        ]

    def state(self) -> dict[str, Any]:
        return (self._weighted or self._stream).state()

    def restore(self, state: dict[str, Any]) -> None:
        (self._weighted or self._stream).restore(state)

    def _has_hint(self, name: str) -> bool:
        return bool(self._hints.find(self._problems[name]))

    def _new(self, count: int) -> list[Problem]:
        if self._stream is not None:
            return [self._stream.next() for _ in range(count)]
        for name, visit in self._history.order[self._observed :]:
            outcome = visit.outcome
            wrong = outcome.valid - outcome.solved
            self._weighted.observe(name, right=outcome.solved, wrong=wrong)
        self._observed = len(self._history.order)
        busy = {task.problem for task in self._bus.state.open_tasks.values()}
        return self._weighted.draw(count, busy=busy)
