"""What a sampler gives back for one turn: the very ids it sampled, and what it measured."""

from dataclasses import dataclass
from typing import Literal, get_args

Stop = Literal["stop_token", "stop_string", "length"]
_STOPS = get_args(Stop)


@dataclass(frozen=True, slots=True)
class ExpertRecord:
    """The experts that a mixture-of-experts model used for the first tokens of a sequence.

    Attributes:
      data: numbers of experts, 2 bytes each, little-endian, [tokens, layers, chosen].
      layers: those that are mixtures. chosen: experts of a token in each.

    Raises:
      ValueError: the data are no whole number of tokens.
    """

    data: bytes
    layers: int
    chosen: int

    def __post_init__(self):
        if self.layers < 1 or self.chosen < 1 or len(self.data) % (2 * self.layers * self.chosen):
            raise ValueError(
                f"{len(self.data)} bytes are no record of {self.layers} layers with {self.chosen}"
                " experts each"
            )

    def __len__(self) -> int:
        return len(self.data) // (2 * self.layers * self.chosen)

    def then(self, later: "ExpertRecord") -> "ExpertRecord":
        """With what a record of more tokens has beyond this one's end."""
        return ExpertRecord(self.data + later.data[len(self.data) :], self.layers, self.chosen)


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled turn.

    Attributes:
      ids: sampled token ids in order, at least one. An end-of-turn token and the tokens that hold
        a stop string are part of it: they were sampled, so they are trained on.
      logprobs: natural log-probability of each id under the distribution it was drawn from.
      stop: why sampling ended. `length` means the token limit: the turn is cut off.
      version: number of batches that the sampling weights had been trained on.
      experts: of the tokens of prompt and completion, perhaps without the last; None where the
        sampler recorded none.

    Raises:
      ValueError: no ids, unequal lengths, or an unknown stop cause.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop: Stop
    version: int
    experts: ExpertRecord | None = None

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
