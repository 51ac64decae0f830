"""How the gate's policy answers: options that programs share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the untrained policy answers."""

    style: Literal["direct", "tools", "question"] = "direct"
    """How questions are put by variants that do not say."""
    samples: int = 8
    """Answers a question."""
    max_tokens: int = 256
    """Tokens sampled a turn."""
    max_context: int | None = None
    """Tokens of a whole episode; the model's limit, at most 8,192, if not given."""
    rows: int = 32
    """Answers decoded side by side."""
    workers: int = 2
    """Processes that run SQL."""
    seed: int = 0
    """Decides what is sampled."""
