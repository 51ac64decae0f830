"""Questions as an endless, shuffled and exactly resumable stream, through Grain."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import astuple
from typing import TypedDict

from jax_t2sql.errors import UserError
from jax_t2sql.text2sql import Problem


class StreamState(TypedDict):
    """Where a stream stands, as JSON: enough to go on with the very next question."""

    position: int  # questions drawn so far, over all epochs
    seed: int
    shuffle: bool
    questions: str  # hash of the questions in order


class QuestionStream:
    """Draws questions for ever, each once an epoch, in a new order every epoch.

    The order is a pure function of seed and position (`grain.MapDataset` looks items up by index),
    so a state is one number and a restored stream needs no replay.

    Args:
      problems: at least one.
      seed: decides the order of every epoch.
      shuffle: False keeps the order given.
    """

    def __init__(self, problems: Sequence[Problem], *, seed: int, shuffle: bool = True):
        import grain  # takes two seconds, and programs print their help without it

        if not problems:
            raise UserError("there are no questions to draw from; check the data file and filters")
        self._seed, self._shuffle, self._position = seed, shuffle, 0
        # A new seed each epoch comes from repeating after the shuffle.
        dataset = grain.MapDataset.source(list(problems)).seed(seed)
        self._dataset = (dataset.shuffle() if shuffle else dataset).repeat()
        self._size = len(problems)
        self._hash = _hash(problems)

    @property
    def epoch(self) -> int:
        """Whole passes made over the questions."""
        return self._position // self._size

    def next(self) -> Problem:
        """The next question."""
        problem = self._dataset[self._position]
        self._position += 1
        return problem

    def state(self) -> StreamState:
        """What `restore` takes, after a round trip through JSON too."""
        return {
            "position": self._position,
            "seed": self._seed,
            "shuffle": self._shuffle,
            "questions": self._hash,
        }

    def restore(self, state: StreamState) -> None:
        """Goes to where `state` was taken.

        Raises:
          UserError: the state is of another seed, order or set of questions.
        """
        for name, mine in self.state().items():
            if name != "position" and state.get(name) != mine:
                raise UserError(
                    f"the data cursor was saved with {name}={state.get(name)!r}, this run has"
                    f" {mine!r}; resume with the questions and seed that the run started with"
                )
        position = state.get("position")
        if not isinstance(position, int) or position < 0:
            raise UserError(f"the data cursor has position={position!r}; it must be 0 or more")
        self._position = position


def _hash(problems: Sequence[Problem]) -> str:
    digest = hashlib.sha256()
    for problem in problems:
        digest.update(json.dumps(astuple(problem)).encode())
    return digest.hexdigest()
