"""Which of a run's versions is the best, and whether waiting for a better one is over."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Validation:
    """Held-out accuracy of one version.

    Attributes:
      step: the version.
      accuracy: share of right answers.
      n: questions.
    """

    step: int
    accuracy: float
    n: int


def best(found: Sequence[Validation], *, min_gain: float = 0.0) -> Validation | None:
    """The last validation that beat the best before it by more than `min_gain`; None without any.

    >>> best([Validation(0, 0.5, 10), Validation(20, 0.6, 10), Validation(40, 0.6, 10)]).step
    20
    """
    top = None
    for validation in found:
        if top is None or validation.accuracy > top.accuracy + min_gain:
            top = validation
    return top


def out_of_patience(
    found: Sequence[Validation], *, patience: int | None, min_gain: float = 0.0
) -> str:
    """Why training should end, in words; "" if it should go on.

    Args:
      found: validations in the order of their steps.
      patience: how many in a row may pass without a better one; None: any number.
      min_gain: as for `best`.
    """
    top = best(found, min_gain=min_gain)
    if top is None or patience is None:
        return ""
    later = [v for v in found if v.step > top.step]
    if len(later) < patience:
        return ""
    return (
        f"no validation in {len(later)} was better than the {top.accuracy:.1%} of step {top.step}"
        " (--eval.patience)"
    )
