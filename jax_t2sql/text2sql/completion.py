"""What a sampler gives back for one turn: the very ids it sampled, and what it measured."""

from dataclasses import dataclass
from typing import Literal, get_args

Stop = Literal["stop_token", "stop_string", "length"]
_STOPS = get_args(Stop)


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled turn.

    Attributes:
      ids: sampled token ids in order, at least one. An end-of-turn token and the tokens that hold
        a stop string are part of it: they were sampled, so they are trained on.
      logprobs: natural log-probability of each id under the distribution it was drawn from.
      stop: why sampling ended. `length` means the token limit: the turn is cut off.
      version: number of batches that the sampling weights had been trained on.

    Raises:
      ValueError: no ids, unequal lengths, or an unknown stop cause.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop: Stop
    version: int

    def __post_init__(self):
        if not self.ids:
            raise ValueError("a completion holds no ids: a sampler returns at least one token")
        if len(self.ids) != len(self.logprobs):
            raise ValueError(
                f"a completion holds {len(self.ids)} ids and {len(self.logprobs)} log-probs;"
                " every sampled id needs exactly one"
            )
        if self.stop not in _STOPS:
            raise ValueError(
                f"a completion has stop={self.stop!r}; it must be one of {', '.join(_STOPS)}"
            )
