"""Questions drawn by the signal that their rollouts are expected to give.

A group teaches by how much its rewards differ. Of a question with solve rate p the variance of a
right answer is p (1 - p): none where all or no rollouts are right. What is known of p is the
question's earlier outcomes, where a visit counts `memory` times as much as the one after it, since
the policy has changed meanwhile. With a uniform prior that is a beta distribution, and a question's
weight is the expected variance under it,

    E[p (1 - p)] = a b / ((a + b) (a + b + 1)),    a = 1 + right, b = 1 + wrong,

as a share of its greatest possible value, 1/4, but at least the floor. What was never asked has
weight 1.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from data_pipelines.questions import check_cursor, hash_questions, question_parts
from jax_t2sql.errors import UserError
from jax_t2sql.text2sql import Problem


def signal_weight(right: float, wrong: float, *, floor: float) -> float:
    """Weight of a question from its (discounted) counts of right and wrong rollouts.

    >>> round(signal_weight(8, 8, floor=0.1), 2), round(signal_weight(16, 0, floor=0.1), 2)
    (0.95, 0.2)
    """
    a, b = 1 + right, 1 + wrong
    return max(floor, 4 * a * b / ((a + b) * (a + b + 1)))


class WeightedQuestions:
    """Draws questions by weight, without repeating one within a draw.

    Which are drawn follows from seed, position and outcomes; the outcomes are the caller's to keep
    (they stand in the log), so that the state is one number.

    Args:
      problems: at least one.
      seed, shares: as for `data_pipelines.questions.QuestionStream`.
      floor: least weight; 1 is that of the most learnable.
      memory: what a visit still counts at the next.

    Raises:
      UserError: no questions, or shares that do not fit them.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        *,
        seed: int,
        floor: float,
        memory: float,
        shares: Mapping[str, float] | None = None,
    ):
        if not problems:
            raise UserError("there are no questions to draw from; check the data file and filters")
        self._problems = list(problems)
        self._seed, self._floor, self._memory = seed, floor, memory
        self._shares = dict(shares or {})
        self._position = 0
        self._hash = hash_questions(problems)
        index = {problem.question_id: i for i, problem in enumerate(self._problems)}
        self._index = index
        self._parts = [
            (np.array([index[p.question_id] for p in part]), share)
            for part, share in question_parts(problems, self._shares)
        ]
        self._right, self._wrong = np.zeros(len(index)), np.zeros(len(index))
        self._asked = np.zeros(len(index), bool)

    def observe(self, question_id: str, *, right: int, wrong: int) -> None:
        """Counts a group of a question; one that is not drawn here is ignored."""
        i = self._index.get(question_id)
        if i is None or right + wrong == 0:
            return
        self._right[i] = self._memory * self._right[i] + right
        self._wrong[i] = self._memory * self._wrong[i] + wrong
        self._asked[i] = True

    @property
    def weights(self) -> np.ndarray:
        """Of each question, from floor to 1; shares apart."""
        a, b = 1 + self._right, 1 + self._wrong
        signal = np.maximum(self._floor, 4 * a * b / ((a + b) * (a + b + 1)))
        return np.where(self._asked, signal, 1.0)

    def draw(self, count: int, *, busy: Collection[str] = ()) -> list[Problem]:
        """The next questions, each once as long as there are as many.

        Args:
          count: how many.
          busy: ids of questions that are being asked: drawn only if nothing else is left.
        """
        drawn = self._round(count, busy)
        while len(drawn) < count:
            drawn += self._round(count - len(drawn), ())
        return drawn

    def _round(self, count: int, busy: Collection[str]) -> list[Problem]:
        """At most all questions once: those with the greatest log(u) / weight (A-ES sampling)."""
        weights = self.weights
        for members, share in self._parts:
            weights[members] *= share / weights[members].sum()
        # One draw for each question and position, whatever is busy.
        uniform = np.random.default_rng([self._seed, self._position]).random(len(weights))
        keys = np.log1p(-uniform) / weights
        taken = [self._index[name] for name in busy if name in self._index]
        free = np.setdiff1d(np.arange(len(keys)), taken)
        chosen = free[np.argsort(-keys[free], kind="stable")][:count]
        self._position += 1
        return [self._problems[i] for i in chosen]

    def state(self) -> dict[str, Any]:
        """What `restore` takes; outcomes are to be observed again."""
        return {
            "position": self._position,
            "seed": self._seed,
            "floor": self._floor,
            "memory": self._memory,
            "shares": self._shares,
            "questions": self._hash,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes to where `state` was taken. Raises UserError if it is of other questions."""
        self._position = check_cursor(state, self.state())
