"""From how an episode ended and what its query gave to the reward of the rollout."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jax_t2sql.grading.verdict import Verdict

if TYPE_CHECKING:
    from jax_t2sql.text2sql import Ending

_NO_REWARD = ("infrastructure", "gold_error", "gold_empty")


@dataclass(frozen=True, kw_only=True)
class RewardRule:
    """What earns how much.

    Attributes:
      unfinished: an episode without an answer: it broke the protocol, or its last turn was cut off
        by the token limit (a cut-off turn never counts as an answer).
      wrong: an answer whose query fails (error, timeout, too large, refused, no query) or whose
        result differs.
      right: an equal result.
      refuted: added to an equal result whose query is refuted: a database shows that it is not
        equivalent to the gold query.
      evidence: added for each of the two rules on structured evidence that is not kept.
      floor: no total is below it: nothing is worse than not finishing. None lifts it.
      lenient: whoever grades is to read a cut-off turn as if it had ended there, so that it may
        hold an answer. For comparison only: it rewards whatever runs on after its answer.
    """

    unfinished: float = -1.0
    wrong: float = 0.0
    right: float = 1.0
    refuted: float = -0.2
    evidence: float = -0.1
    floor: float | None = -1.0
    lenient: bool = False


@dataclass(frozen=True)
class Reward:
    """The reward of one rollout.

    Attributes:
      total: sum of the terms, not below the rule's floor; 0 where not valid.
      terms: what it is made of, by name. "contract": the episode broke the protocol or was cut off.
        "result": what the answer's result earns. "equivalence": 0, or what being refuted costs;
        absent where nothing was checked. Other names: terms that the caller gave.
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
    refuted: bool | None = None,
    further: Mapping[str, float] | None = None,
    rule: RewardRule | None = None,
) -> Reward:
    """Rewards a rollout.

    Args:
      ending: of the episode; its kind is "answered", "contract_broken" or "cut_off".
      verdict: on the answer; None where there is none.
      refuted: whether the equivalence checker has refuted the answer; None if it was not asked.
        Counts where the result is equal; anywhere else there is nothing to take back.
      further: terms of other rules by name, added to what the ending earns, whatever it is.
      rule: the amounts; by default `RewardRule()`.

    Returns: a reward that is not valid where the verdict speaks of the machinery or of the gold
      query ("infrastructure", "gold_error", "gold_empty") instead of the answer.

    Raises:
      ValueError: an unknown ending, an answer without a verdict, or a further term whose name is
        one of the rule's own.
    """
    rule = rule or RewardRule()
    if ending.kind in ("contract_broken", "cut_off"):
        terms, reason = {"contract": rule.unfinished}, ending.reason
    elif ending.kind != "answered":
        raise ValueError(
            f"ending {ending.kind!r} is unknown; expected answered, contract_broken or cut_off"
        )
    elif verdict is None:
        raise ValueError("an answered episode needs the verdict on its answer; grade it first")
    elif verdict.status in _NO_REWARD:
        return Reward(0.0, valid=False, reason=verdict.status)
    else:
        is_right = verdict.status == "equal"
        terms, reason = {"result": rule.right if is_right else rule.wrong}, verdict.status
        if is_right and refuted is not None:
            terms["equivalence"] = rule.refuted if refuted else 0.0
            reason = "refuted" if refuted else reason
    for name, value in (further or {}).items():
        if name in ("contract", "result", "equivalence"):
            raise ValueError(f"the term {name!r} is the rule's own; give the further one a name")
        terms[name] = value
    total = sum(terms.values())
    if rule.floor is not None:
        total = max(total, rule.floor)
    return Reward(total, terms, reason=reason)
