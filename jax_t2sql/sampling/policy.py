"""What every sampler offers: prompts as token ids in, sampled ids and their log-probs out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from jax_t2sql.text2sql.completion import Completion


@dataclass(frozen=True, kw_only=True)
class SampleRequest:
    """One continuation to sample.

    Attributes:
      prompt_ids: token ids of the whole context, never empty.
      seed: decides the sampled tokens together with the prompt, whatever else is in the batch.
      max_tokens: at most this many tokens are sampled (> 0).
      temperature: 0 picks the most likely token; training samples at 1.
    """

    prompt_ids: tuple[int, ...]
    seed: int
    max_tokens: int
    temperature: float = 1.0

    def __post_init__(self):
        if not self.prompt_ids:
            raise ValueError(
                "prompt_ids is empty: a continuation needs at least one token before it"
            )
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}; it must be at least 1")
        if self.temperature < 0:
            raise ValueError(f"temperature is {self.temperature}; it must be 0 (greedy) or more")


class Policy(Protocol):
    """A served model. `version` counts the batches that its weights were trained on."""

    version: int

    def generate(
        self, requests: Sequence[SampleRequest], *, stop_strings: Sequence[str] = ()
    ) -> list[Completion]:
        """Samples one `Completion` a request, in the order of the requests.

        Log-probs are those of the distribution sampled from (logits / temperature), or of
        the model's own distribution where temperature is 0.
        """
        ...
