"""Alarms over the steps of a run: answers that run away in length, a format that collapses.

Both look at means over a window of steps, since single steps are noisy, and compare the last window
with the best earlier one: what a run never could is no collapse.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jax_t2sql.bus import Outcome
from jax_t2sql.config import AlarmsConfig

# Of right answers; less is noise.
_BETTER = 0.02


@dataclass(frozen=True)
class Alarm:
    """What was seen and what to do about it, in words.

    Attributes:
      kind: "length" or "format".
      step: the last of the steps seen.
    """

    kind: Literal["length", "format"]
    step: int
    text: str


@dataclass(frozen=True)
class _Window:
    """Means over a few steps: tokens a rollout, and shares of rollouts."""

    first: int
    last: int
    tokens: float
    solved: float
    cut_off: float
    broken: float

    @property
    def unfinished(self) -> float:
        return self.cut_off + self.broken

    @property
    def name(self) -> str:
        return f"steps {self.first} to {self.last}"


def find_alarms(
    steps: Sequence[tuple[int, Sequence[Outcome]]], config: AlarmsConfig
) -> list[Alarm]:
    """Alarms that the steps so far give, at most one of a kind.

    Args:
      steps: of each batch the version that it changed and its groups' outcomes, as
        `jax_t2sql.history.History.steps` has them.
    """
    count = config.window
    usable = [step for step in steps if sum(o.rollouts for o in step[1])]
    if config.action == "off" or len(usable) < 2 * count:
        return []
    now = _window(usable[-count:])
    before = [_window(usable[i : i + count]) for i in range(len(usable) - 2 * count + 1)]
    found = [_length(now, before, config), _format(now, before, config)]
    return [alarm for alarm in found if alarm is not None]


def _window(steps: Sequence[tuple[int, Sequence[Outcome]]]) -> _Window:
    outcomes = [outcome for _, part in steps for outcome in part]
    rollouts = sum(o.rollouts for o in outcomes)
    return _Window(
        first=steps[0][0] + 1,
        last=steps[-1][0] + 1,
        tokens=sum(o.tokens for o in outcomes) / rollouts,
        solved=sum(o.solved for o in outcomes) / rollouts,
        cut_off=sum(o.cut_off for o in outcomes) / rollouts,
        broken=sum(o.broken for o in outcomes) / rollouts,
    )


def _length(now: _Window, before: Sequence[_Window], config: AlarmsConfig) -> Alarm | None:
    then = min(before, key=lambda window: window.tokens)
    grown = now.tokens / max(then.tokens, 1e-9)
    if grown < config.length_factor or now.solved > then.solved + _BETTER:
        return None
    return Alarm(
        "length",
        now.last,
        f"answers run away in length: {now.tokens:,.0f} sampled tokens a rollout in {now.name},"
        f" {then.tokens:,.0f} in {then.name} ({grown:.1f} times as many), while right answers went"
        f" from {then.solved:.0%} to {now.solved:.0%} and turns cut off by the token limit from"
        f" {then.cut_off:.0%} to {now.cut_off:.0%}. Lower --optimizer.lr, give fewer"
        " --prompt.max-tokens so that long answers cost, and go back to the best checkpoint"
        f"{_limit_is_far(now)}",
    )


def _limit_is_far(now: _Window) -> str:
    """What else to look at where limits do not bite."""
    return "" if now.cut_off > 0 else "; nothing is cut off: the token limit is far away"


def _format(now: _Window, before: Sequence[_Window], config: AlarmsConfig) -> Alarm | None:
    then = min(before, key=lambda window: window.unfinished)
    bound = config.unfinished_share
    if now.unfinished <= bound or then.unfinished > bound / 2:
        return None
    broken = now.broken >= now.cut_off
    advice = (
        "most break the protocol: look at samples.jsonl for what they write instead; lower"
        " --optimizer.lr or --loss.ratio-high, or warm up longer (--warmup.steps)"
        if broken
        else "most are cut off by the token limit: raise --prompt.max-tokens if answers are sound,"
        " else lower --optimizer.lr"
    )
    return Alarm(
        "format",
        now.last,
        f"the format collapses: {now.unfinished:.0%} of rollouts end without an answer in"
        f" {now.name} ({now.broken:.0%} break the protocol, {now.cut_off:.0%} are cut off), it was"
        f" {then.unfinished:.0%} in {then.name}; right answers went from {then.solved:.0%} to"
        f" {now.solved:.0%}. Of these {advice}",
    )
