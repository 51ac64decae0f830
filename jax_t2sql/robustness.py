"""Training prompts whose evidence is not the question's own, so that models learn to doubt it.

Whether a prompt is changed, and how, follows from the seed of its task: every sampler puts the task
alike, and a task that is offered again is put as before. Evaluation never sees such prompts, nor do
tasks with a hint.

Rewards: with evidence withheld there is nothing to require or verify, so those two rules do not
apply. Nor do they with wrong evidence: the blocks are asked for as always, since a model cannot
know beforehand, but keeping to what is false earns nothing and ignoring it costs nothing. The
result alone counts, against the true gold query.
"""

import random
import re
from collections.abc import Sequence
from typing import Literal

from jax_t2sql.config import RobustnessConfig
from jax_t2sql.rollouts import rollout_seed
from jax_t2sql.text2sql.evidence import evidence_pieces

Given = Literal["own", "withheld", "wrong"]

_DEFINES = re.compile(r"^(.+?\S)(\s+(?:refers?\s+to|means?|stands\s+for|is|are)\s+|\s*=\s*)(\S.*)$")
_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")
_NUMBER = re.compile(r"(?<![\w.'\"])\d+(?:\.\d+)?(?![\w'\"])")


def evidence_of_task(seed: int, config: RobustnessConfig) -> Given:
    """How the evidence of a training task is given.

    >>> evidence_of_task(3, RobustnessConfig(evidence_withheld=1.0))
    'withheld'
    """
    drawn = rollout_seed(seed, "evidence") / 2**32
    if drawn < config.evidence_withheld:
        return "withheld"
    return "wrong" if drawn < config.evidence_withheld + config.evidence_wrong else "own"


def wrong_evidence(evidence: str, others: Sequence[str], seed: int) -> str | None:
    """Evidence that looks right and is not: one piece is changed.

    A term gets the definition of another one, a quoted value or a number becomes another, or, where
    a piece has none of these, it becomes a piece of another question.

    Args:
      evidence: the question's own.
      others: that of other questions over the same database.
      seed: of the task.

    Returns: None where nothing can be changed.
    """
    rng = random.Random(rollout_seed(seed, "wrong evidence"))
    pieces = list(evidence_pieces(evidence))
    foreign = sorted({p for text in others for p in evidence_pieces(text)} - set(pieces))
    for index in rng.sample(range(len(pieces)), len(pieces)):
        changed = [_redefined, _requoted, _renumbered]
        rng.shuffle(changed)
        for change in (*changed, _replaced):
            new = change(pieces[index], foreign, rng)
            if new is not None and new not in pieces:
                return "; ".join([*pieces[:index], new, *pieces[index + 1 :]])
    return None


def _redefined(piece: str, foreign: Sequence[str], rng: random.Random) -> str | None:
    own = _DEFINES.match(piece)
    if own is None:
        return None
    found = [match[3] for text in foreign if (match := _DEFINES.match(text))]
    other = [text for text in found if text != own[3]]
    return f"{own[1]}{own[2]}{rng.choice(other)}" if other else None


def _requoted(piece: str, foreign: Sequence[str], rng: random.Random) -> str | None:
    quoted = list(_QUOTED.finditer(piece))
    values = {match[1] or match[2] for text in foreign for match in _QUOTED.finditer(text)}
    values -= {match[1] or match[2] for match in quoted}
    if not quoted or not values:
        return None
    match = rng.choice(quoted)
    start, end = match.span(1 if match[1] else 2)
    return piece[:start] + rng.choice(sorted(values)) + piece[end:]


def _renumbered(piece: str, foreign: Sequence[str], rng: random.Random) -> str | None:
    numbers = list(_NUMBER.finditer(piece))
    if not numbers:
        return None
    match = rng.choice(numbers)
    value = float(match[0])
    other = rng.choice([value + 1, value * 2 + 3, value * 10 + 5])
    return f"{piece[: match.start()]}{other:g}{piece[match.end() :]}"


def _replaced(piece: str, foreign: Sequence[str], rng: random.Random) -> str | None:
    return rng.choice(foreign) if foreign else None
