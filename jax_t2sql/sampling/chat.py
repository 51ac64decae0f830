"""Conversations as token ids, by the model's own chat template.

The template is rendered once a conversation shape, with a placeholder for each message's content.
The pieces between placeholders are the template's and are encoded with special tokens; contents are
encoded apart as plain text. So a database cell or a question that spells `<|im_end|>` is only
characters to the model, and closes no turn.

The glue around an observation is what the template prints between an assistant's turn, the user's
turn after it and the next assistant header: any template works that prints turns in order.
"""

import re
from collections.abc import Sequence
from typing import Protocol

from jax_t2sql.errors import UserError
from jax_t2sql.text2sql.codec import Message, Style
from jax_t2sql.text2sql.protocol import SOLUTION_CLOSE, THINK_OPEN
from jax_t2sql.text2sql.tool_formats import HERMES, ToolFormat

# Private-use characters: no template trims, escapes or prints them of its own accord.
_PLACEHOLDER = re.compile("\ue0f0(\\d+)\ue0f1")


class TemplateTokenizer(Protocol):
    """The part of `jax_t2sql.models.Tokenizer` that a codec needs."""

    stop_ids: Sequence[int]
    pad_id: int

    def encode(self, text: str, *, special: bool = False) -> list[int]: ...

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str: ...

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str: ...


class ChatCodec:
    """A `jax_t2sql.text2sql.Codec` over a tokenizer with a chat template.

    Surrounding blanks of a message's content are dropped, as most templates do.

    Raises:
      UserError: the template does not print each message exactly once and in order.
    """

    def __init__(self, tokenizer: TemplateTokenizer):
        self._tokenizer = tokenizer
        self._shapes: dict[tuple[str, ...], tuple[tuple[int, ...], ...]] = {}
        self.stop_ids = frozenset(int(i) for i in tokenizer.stop_ids)
        self._dropped_at_end = self.stop_ids | {tokenizer.pad_id}
        pieces = self._template_pieces(("user", "assistant", "user"))
        self.opens_reasoning = pieces[3].rstrip().endswith(THINK_OPEN)
        self._close_turn = tuple(tokenizer.encode(pieces[2], special=True))
        self._open_turn = tuple(tokenizer.encode(pieces[3], special=True))

    def encode_prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """See `Codec.encode_prompt`."""
        roles = tuple(message["role"] for message in messages)
        shape = self._shapes.get(roles)
        if shape is None:
            pieces = self._template_pieces(roles)
            shape = tuple(tuple(self._tokenizer.encode(p, special=True)) for p in pieces)
            self._shapes[roles] = shape
        ids = list(shape[0])
        for message, piece in zip(messages, shape[1:], strict=True):
            ids += self._tokenizer.encode(message["content"].strip())
            ids += piece
        return tuple(ids)

    def encode_observation(self, text: str, *, last_id: int) -> tuple[int, ...]:
        """See `Codec.encode_observation`."""
        close = self._close_turn
        if close and close[0] == last_id and last_id in self.stop_ids:
            close = close[1:]
        return (*close, *self._tokenizer.encode(text.strip()), *self._open_turn)

    def decode(self, ids: Sequence[int]) -> str:
        """See `Codec.decode`."""
        end = len(ids)
        while end and ids[end - 1] in self._dropped_at_end:
            end -= 1
        return self._tokenizer.decode(ids[:end])

    def stop_strings(self, style: Style, tools: ToolFormat = HERMES) -> tuple[str, ...]:
        """See `Codec.stop_strings`.

        Only the tools protocol has closing tags. A closing code fence looks like an opening one,
        so direct and question answers end with the model's end token.
        """
        return (tools.close, SOLUTION_CLOSE) if style == "tools" else ()

    def _template_pieces(self, roles: tuple[str, ...]) -> list[str]:
        """What the template prints before, between and after the contents of these turns."""
        messages: list[Message] = [
            {"role": role, "content": f"\ue0f0{i}\ue0f1"} for i, role in enumerate(roles)
        ]
        parts = _PLACEHOLDER.split(self._tokenizer.render(messages, add_generation_prompt=True))
        if parts[1::2] != [str(i) for i in range(len(roles))]:
            raise UserError(
                f"the chat template does not print the turns {', '.join(roles)} once each and in"
                f" order (printed: {', '.join(parts[1::2]) or 'none'}); use another template"
            )
        return parts[::2]
