"""Questions as an endless, shuffled and exactly resumable stream, through Grain."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any, TypedDict

from jax_t2sql.errors import UserError
from jax_t2sql.text2sql import Problem


class StreamState(TypedDict):
    """Where a stream stands, as JSON: enough to go on with the very next question."""

    position: int  # questions drawn so far by all shards together, over all epochs
    seed: int
    shuffle: bool
    shares: dict[str, float]
    questions: str  # hash of the questions in order


class QuestionStream:
    """Draws questions for ever, each once an epoch, in a new order every epoch.

    The order is a pure function of seed and position (`grain.MapDataset` looks items up by index),
    so a state is one number and a restored stream needs no replay. Several readers that draw in
    step, each with its shard of one stream, draw together what one reader would; their state can be
    restored with another number of shards.

    Args:
      problems: at least one.
      seed: decides the order of every epoch.
      shuffle: False keeps the order given.
      shares: part of the draws that go to each source (`Problem.source`); sources that are not
        named get the rest by their size. Empty: every question is drawn equally often. With shares
        each part goes through its own epochs.
      shard: (index, count): draw every count-th question, beginning at index.

    Raises:
      UserError: no questions, or shares that do not fit them.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        *,
        seed: int,
        shuffle: bool = True,
        shares: Mapping[str, float] | None = None,
        shard: tuple[int, int] = (0, 1),
    ):
        if not problems:
            raise UserError("there are no questions to draw from; check the data file and filters")
        if not 0 <= shard[0] < shard[1]:
            raise ValueError(f"shard is {shard}; it must be (index, count) with index < count")
        self._seed, self._shuffle, self._shares = seed, shuffle, dict(shares or {})
        self._position, self._shard = 0, shard
        self._dataset = _mixed(question_parts(problems, self._shares), seed, shuffle)
        self._size = len(problems)
        self._hash = hash_questions(problems)

    @property
    def epoch(self) -> int:
        """How many times as many questions as there are have been drawn."""
        return self._position // self._size

    def next(self) -> Problem:
        """The next question of this shard."""
        index, count = self._shard
        problem = self._dataset[self._position + index]
        self._position += count
        return problem

    def state(self) -> StreamState:
        """What `restore` takes, after a round trip through JSON too."""
        return {
            "position": self._position,
            "seed": self._seed,
            "shuffle": self._shuffle,
            "shares": self._shares,
            "questions": self._hash,
        }

    def restore(self, state: StreamState) -> None:
        """Goes to where `state` was taken.

        Raises:
          UserError: the state is of another seed, order or set of questions.
        """
        self._position = check_cursor(state, self.state())


def check_cursor(state: Mapping[str, Any], mine: Mapping[str, Any]) -> int:
    """The position that a state names.

    Args:
      state: what was saved.
      mine: a state of the stream that is to go on from there.

    Raises:
      UserError: the two differ in more than their position, or that is no position.
    """
    for name, value in mine.items():
        if name != "position" and state.get(name) != value:
            raise UserError(
                f"the data cursor was saved with {name}={state.get(name)!r}, this run has"
                f" {value!r}; resume with the questions and seed that the run started with"
            )
    position = state.get("position")
    if not isinstance(position, int) or position < 0:
        raise UserError(f"the data cursor has position={position!r}; it must be 0 or more")
    return position


def question_parts(
    problems: Sequence[Problem], shares: Mapping[str, float]
) -> list[tuple[list[Problem], float]]:
    """(questions, weight): one part a named source, and one of all others.

    Raises:
      UserError: shares that do not fit the questions.
    """
    named = {name: [p for p in problems if p.source == name] for name in shares}
    for name, found in named.items():
        if not found:
            raise UserError(f"no question is left of {name}, which has a share of the draws")
    rest = 1 - sum(shares.values())
    others = [problem for problem in problems if problem.source not in shares]
    if any(share <= 0 for share in shares.values()) or rest < -1e-9 or (others and rest < 1e-9):
        raise UserError(
            f"shares of the draws are {dict(shares)}; each must be above 0, and together they must"
            f" leave room for {len(others)} other questions"
        )
    parts = [(named[name], share) for name, share in shares.items()]
    return [(others, rest), *parts] if others else parts


def _mixed(parts: Sequence[tuple[list[Problem], float]], seed: int, shuffle: bool) -> Any:
    """Every part in its own endless order, interleaved by weight."""
    import grain  # takes two seconds, and programs print their help without it

    datasets = []
    for index, (problems, _) in enumerate(parts):
        dataset = grain.MapDataset.source(problems).seed(seed + index)
        # A new seed each epoch comes from repeating after the shuffle.
        datasets.append((dataset.shuffle() if shuffle else dataset).repeat())
    if len(datasets) == 1:
        return datasets[0]
    return grain.MapDataset.mix(datasets, weights=[weight for _, weight in parts])


def hash_questions(problems: Sequence[Problem]) -> str:
    """Of all fields of all questions, in order."""
    digest = hashlib.sha256()
    for problem in problems:
        digest.update(json.dumps(astuple(problem)).encode())
    return digest.hexdigest()
