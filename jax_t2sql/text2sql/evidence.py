"""External knowledge as pieces, and whether an answer says how it understood and used each.

Knowledge is split on `;`, blank pieces are ignored, the others are numbered from 1. A model that is
asked for structured evidence writes one entry a piece, twice:

    Requirement of external knowledge 1 (raw text of the piece): what it asks of the query
    Verification of external knowledge 1 (raw text of the piece): how the query meets it

the first block by its second turn, the other in the turn that answers. An entry counts where it
begins a line of what the model says: not in a reasoning block, a tool call, a solution, a code
fence, a quotation (`>`) or the middle of a sentence. It must carry the piece's own number and text
(blanks apart) and say something; the order of the entries is free.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jax_t2sql.text2sql.protocol import without_reasoning
from jax_t2sql.text2sql.tool_formats import without_calls

Block = Literal["Requirement", "Verification"]

# Turns, from the first, in which the requirement block may stand.
REQUIREMENT_TURNS = 2

_SAID_ELSEWHERE = re.compile(
    r"<solution>.*?(?:</solution>|\Z)|```.*?(?:```|\Z)|^[ \t]*>[^\n]*", re.DOTALL | re.MULTILINE
)
# List marks and emphasis that models put before a line of their own accord.
_LINE_START = r"^[ \t]*(?:[-*+•][ \t]+|\d{1,3}[.)][ \t]+)?[*_#]{0,3}[ \t]*"
_ENTRY_START = re.compile(
    rf"{_LINE_START}(?:Requirement|Verification)\s+of\s+external\s+knowledge\s+\d+\s*\(",
    re.IGNORECASE | re.MULTILINE,
)
# What follows the colon on its line, or on the next.
_SAYS_SOMETHING = re.compile(r"(?:[^\w\n]|_)*\n?(?:[^\w\n]|_)*[^\W_]")


@dataclass(frozen=True, slots=True)
class Compliance:
    """Which pieces of knowledge an episode left out of its blocks, by number from 1.

    Attributes:
      pieces: how many pieces there are; without any nothing is asked.
      requirement_missing: not in the requirement block by the second turn.
      verification_missing: not in the verification block of the last turn.
    """

    pieces: int
    requirement_missing: tuple[int, ...] = ()
    verification_missing: tuple[int, ...] = ()

    @property
    def rules_missed(self) -> int:
        """How many of the two rules are not kept: 0, 1 or 2."""
        return bool(self.requirement_missing) + bool(self.verification_missing)


def evidence_pieces(evidence: str) -> tuple[str, ...]:
    """The pieces of a question's external knowledge, in order, blanks at their ends dropped.

    >>> evidence_pieces("Dutch refers to language = 'nl'; ; long refers to pages > 500;")
    ("Dutch refers to language = 'nl'", 'long refers to pages > 500')
    """
    return tuple(piece.strip() for piece in evidence.split(";") if piece.strip())


def entry(block: Block, number: int | str, piece: str, text: str) -> str:
    """One line of a block, as a model should write it."""
    return f"{block} of external knowledge {number} ({piece}): {text}"


def missing_entries(
    text: str, pieces: Sequence[str], block: Block, *, inside_reasoning: bool = False
) -> tuple[int, ...]:
    """Numbers of the pieces that have no entry of their own in this block of a message.

    Args:
      text: what the model wrote, in one turn or in several joined by blank lines.
      pieces: of `evidence_pieces`.
      block: which of the two.
      inside_reasoning: the prompt ended inside an open reasoning block.
    """
    said = _said(text, inside_reasoning=inside_reasoning)
    numbered = enumerate(pieces, start=1)
    return tuple(n for n, piece in numbered if not _has_entry(said, block, n, piece))


def check_evidence(
    evidence: str, turns: Sequence[str], *, inside_reasoning: bool = False
) -> Compliance:
    """Holds an episode to the two rules.

    Args:
      evidence: the question's external knowledge.
      turns: what the model wrote, turn by turn; the last one answers. If it is the only one, both
        blocks must stand in it.
      inside_reasoning: every turn began inside an open reasoning block.
    """
    pieces = evidence_pieces(evidence)
    if not pieces or not turns:
        every = tuple(range(1, len(pieces) + 1))
        return Compliance(len(pieces), every, every)

    def missing(messages: Sequence[str], block: Block) -> set[int]:
        found = (
            set(missing_entries(message, pieces, block, inside_reasoning=inside_reasoning))
            for message in messages
        )
        return set.intersection(*found)

    return Compliance(
        len(pieces),
        tuple(sorted(missing(turns[:REQUIREMENT_TURNS], "Requirement"))),
        tuple(sorted(missing(turns[-1:], "Verification"))),
    )


def _said(text: str, *, inside_reasoning: bool) -> str:
    """What the model says in its own words: neither reasoning nor SQL nor quotation."""
    visible = without_reasoning(text, inside_reasoning=inside_reasoning)
    return _SAID_ELSEWHERE.sub("\n", without_calls(visible))


def _has_entry(said: str, block: Block, number: int, piece: str) -> bool:
    words = r"\s+".join(map(re.escape, piece.split()))
    header = re.compile(
        rf"{_LINE_START}(?i:{block}\s+of\s+external\s+knowledge)\s+{number}"
        rf"\s*\(\s*{words}\s*\)[*_]{{0,3}}\s*:",
        re.MULTILINE,
    )
    for found in header.finditer(said):
        following = _ENTRY_START.search(said, found.end())
        if _SAYS_SOMETHING.match(said, found.end(), following.start() if following else len(said)):
            return True
    return False
