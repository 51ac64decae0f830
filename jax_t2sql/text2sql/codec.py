"""The seam between text and token ids. `jax_t2sql.sampling.chat` implements it."""

from collections.abc import Sequence
from typing import Literal, Protocol, TypedDict

from jax_t2sql.text2sql.tool_formats import HERMES, ToolFormat

Style = Literal["tools", "direct", "question"]


class Message(TypedDict):
    """One turn of a conversation; `role` is system, user or assistant."""

    role: str
    content: str


class Codec(Protocol):
    """Turns conversations into ids and sampled ids into text, for one tokenizer and template.

    Content is data: a question or a database cell that spells a special token is encoded as the
    plain characters it is made of.

    Attributes:
      stop_ids: ids that end an assistant turn.
      opens_reasoning: the template's generation prompt leaves a reasoning block open.
    """

    stop_ids: frozenset[int]
    opens_reasoning: bool

    def encode_prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Ids of a whole conversation, up to where the assistant's turn begins."""
        ...

    def encode_observation(self, text: str, *, last_id: int) -> tuple[int, ...]:
        """Ids to append after a sampled turn: its end, a user turn, the next assistant header.

        Args:
          text: content of the user turn.
          last_id: last sampled id. The end of the turn is left out where it was sampled.
        """
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of a sampled turn, without the stop tokens at its end."""
        ...

    def stop_strings(self, style: Style, tools: ToolFormat = HERMES) -> tuple[str, ...]:
        """Strings whose completion ends a turn (they stay part of it)."""
        ...
