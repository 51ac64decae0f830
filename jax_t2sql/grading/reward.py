"""From how an episode ended and what its query gave to the reward of the rollout."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jax_t2sql.grading.verdict import Verdict

if TYPE_CHECKING:
    from jax_t2sql.text2sql import Ending

_NO_REWARD = ("infrastructure", "gold_error", "gold_empty")


@dataclass(frozen=True)
class Reward:
    """The reward of one rollout.

    Attributes:
      total: sum of the terms; 0 where not valid.
      terms: what it is made of, by name. "contract": the episode broke the protocol or was cut off.
        "result": what the answer's result earns.
      valid: False where nothing can be said about the rollout; it must then leave the group's mean
        and deviation and the loss, which a reward of 0 would not.
      reason: why, in a few words: for counts and traces.
    """

    total: float
    terms: Mapping[str, float] = field(default_factory=dict)
    valid: bool = True
    reason: str = ""


def reward(
    ending: "Ending",
    verdict: Verdict | None,
    *,
    unfinished: float = -1.0,
    wrong: float = 0.0,
    right: float = 1.0,
) -> Reward:
    """Rewards a rollout.

    Args:
      ending: of the episode; its kind is "answered", "contract_broken" or "cut_off".
      verdict: on the answer; None where there is none.
      unfinished: reward of an episode without an answer: it broke the protocol, or its last turn
        was cut off by the token limit (a cut-off turn never counts as an answer).
      wrong: reward of an answer whose query fails (error, timeout, too large, refused, no query) or
        whose result differs.
      right: reward of an equal result.

    Returns: a reward that is not valid where the verdict speaks of the machinery or of the gold
      query ("infrastructure", "gold_error", "gold_empty") instead of the answer.

    Raises:
      ValueError: an unknown ending, or an answer without a verdict.
    """
    if ending.kind in ("contract_broken", "cut_off"):
        return Reward(unfinished, {"contract": unfinished}, reason=ending.reason)
    if ending.kind != "answered":
        raise ValueError(
            f"ending {ending.kind!r} is unknown; expected answered, contract_broken or cut_off"
        )
    if verdict is None:
        raise ValueError("an answered episode needs the verdict on its answer; grade it first")
    if verdict.status in _NO_REWARD:
        return Reward(0.0, valid=False, reason=verdict.status)
    earned = right if verdict.status == "equal" else wrong
    return Reward(earned, {"result": earned}, reason=verdict.status)
