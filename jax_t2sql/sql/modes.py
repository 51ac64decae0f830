"""The grading mode: which differences between two results count."""

import re
from dataclasses import dataclass
from typing import Literal

from jax_t2sql.errors import UserError


@dataclass(frozen=True)
class Mode:
    """How a predicted result is compared with the gold one.

    Attributes:
      kind: "set" (order and duplicates are free), "multiset" (order is free), "list" (nothing is),
        "subset" (see `count`), "bird" (the public BIRD evaluator's rule, to the bit).
      at_least: subset only: whether `count` is a minimum instead of an exact number.
      count: subset only: how many distinct rows the prediction must have, all of them among the
        gold's rows. The gold lists all acceptable rows of a question such as "name any five".
    """

    kind: Literal["set", "multiset", "list", "subset", "bird"]
    at_least: bool = False
    count: int = 0

    def __str__(self) -> str:
        if self.kind != "subset":
            return self.kind
        return f"subset,{'>=' if self.at_least else '='},{self.count}"


_KINDS = ("set", "multiset", "list", "bird")
_SUBSET = re.compile(r"subset\s*,\s*(=|>=)\s*,\s*(0*[1-9][0-9]{0,8})")


def parse_mode(text: str | None) -> Mode:
    """Reads a mode as question files write it; blanks around parts and letter case are free.

    None and "" mean "set", the rule of questions that name none. A bare "subset" asks for at least
    one row and none that is not gold's: "subset,>=,1".

    Raises:
      UserError: not a mode.

    >>> str(parse_mode(" subset, =, 5")), str(parse_mode(None))
    ('subset,=,5', 'set')
    """
    if text is not None and not isinstance(text, str):
        raise UserError(f"grading mode {text!r} is no text; {_EXPECTED}")
    plain = (text or "").strip().lower()
    if not plain:
        return Mode("set")
    if plain in _KINDS:
        return Mode(plain)
    if plain == "subset":
        return Mode("subset", at_least=True, count=1)
    match = _SUBSET.fullmatch(plain)
    if not match:
        raise UserError(f"grading mode {text!r} is unknown; {_EXPECTED}")
    return Mode("subset", at_least=match[1] == ">=", count=int(match[2]))


_EXPECTED = f"use {', '.join(_KINDS)}, subset (at least one row), subset,=,K or subset,>=,K"
