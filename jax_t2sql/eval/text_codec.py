"""Text in place of token ids, for endpoints that take and give nothing else.

The episode counts in ids. Here an id is a piece of text, about as long as a token, so its bounds
hold nearly; the piece itself can be read from the id.
"""

from collections.abc import Sequence

from jax_t2sql.text2sql.codec import Message, Style
from jax_t2sql.text2sql.completion import Completion
from jax_t2sql.text2sql.protocol import SOLUTION_CLOSE, THINK_CLOSE
from jax_t2sql.text2sql.tool_formats import HERMES, ToolFormat

_PIECE = 3  # characters: SQL and schemas have a few more in a token
_BITS = 21  # of a character
_STOP = 0


class TextCodec:
    """A `jax_t2sql.text2sql.Codec` without a tokenizer."""

    stop_ids = frozenset({_STOP})
    opens_reasoning = False

    def encode_prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """See `Codec.encode_prompt`."""
        return _encode("".join(message["content"] for message in messages))

    def encode_observation(self, text: str, *, last_id: int) -> tuple[int, ...]:
        """See `Codec.encode_observation`."""
        return _encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """See `Codec.decode`. Exact."""
        return "".join(_piece(id) for id in ids)

    def stop_strings(self, style: Style, tools: ToolFormat = HERMES) -> tuple[str, ...]:
        """See `Codec.stop_strings`."""
        return (tools.close, SOLUTION_CLOSE) if style == "tools" else ()


def completion_of(text: str, *, cut_off: bool, stops: Sequence[str], max_tokens: int) -> Completion:
    """A reply as the episode takes it: up to its first stop string, if it has one.

    Endpoints drop the stop strings that they are asked for, and some take none, so they are looked
    for here; what a model dreams up after its own call is no part of the turn.

    Args:
      max_tokens: ids that the completion may have; long replies get longer pieces.
    """
    visible = max(0, text.rfind(THINK_CLOSE))
    ends = [place + len(stop) for stop in stops if (place := text.find(stop, visible)) >= 0]
    if ends:
        text, cut_off = text[: min(ends)], False
    width = max(_PIECE, -(-len(text) // max(1, max_tokens - 1)))
    ids = (*_encode(text, width), *(() if cut_off else (_STOP,)))
    ids = ids or (_STOP,)
    return Completion(ids, (0.0,) * len(ids), "length" if cut_off else "stop_token", 0)


def _encode(text: str, width: int = _PIECE) -> tuple[int, ...]:
    return tuple(_id(text[start : start + width]) for start in range(0, len(text), width))


def _id(piece: str) -> int:
    """The piece's characters as digits, behind a 1 that tells how many there are."""
    number = 1
    for character in piece:
        number = number << _BITS | ord(character)
    return number


def _piece(id: int) -> str:
    characters = []
    while id > 1:
        characters.append(chr(id & (1 << _BITS) - 1))
        id >>= _BITS
    return "".join(reversed(characters))
