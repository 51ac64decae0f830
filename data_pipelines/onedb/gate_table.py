"""The gate's figures, and the table that shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class GateRow:
    """What one variant gives.

    Attributes:
      questions: put; those whose prompt is too long are not.
      samples: answers a question (k).
      right: share of all answers that are right; `interval` is its 95 % Wilson interval.
      solved: share of questions answered right at least once.
      mixed: share of questions with right and wrong answers: what RL learns from.
      unfinished: share of answers cut off or without an answer.
      too_long: questions left out.
    """

    variant: str
    questions: int
    samples: int
    right: float
    interval: tuple[float, float]
    solved: float
    mixed: float
    unfinished: float
    too_long: int = 0


def print_gate(rows: Sequence[GateRow]) -> None:
    """The table for people."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="what an untrained policy does")
    headings = ("variant", "questions", "k", "right", "95 %", "solved once", "mixed", "unfinished")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "variant" else "right")
    for row in rows:
        low, high = row.interval
        table.add_row(
            row.variant, str(row.questions), str(row.samples), f"{row.right:.1%}",
            f"{low:.1%} – {high:.1%}", f"{row.solved:.1%}", f"{row.mixed:.1%}",
            f"{row.unfinished:.1%}",
        )  # fmt: skip
    console = Console(markup=False)
    console.print(table)
    if not any(row.mixed for row in rows):
        console.print("no mixed group: rewards would teach nothing; warm the model up first")
