"""Counts of verdicts, and the table that a person reads."""

from collections import Counter
from typing import TextIO

from jax_t2sql.stats import wilson
from jax_t2sql.verdicts import Graded

_MAX_DATABASES_SHOWN = 20


class Tally:
    """Verdicts counted.

    Attributes:
      verdicts: pairs by verdict.
      matches, graded: pairs by database; those graded are the ones whose verdict says anything of
        the prediction.
      empty_golds: pairs whose gold result is empty.
    """

    def __init__(self) -> None:
        self.verdicts: Counter[str] = Counter()
        self.matches: Counter[str] = Counter()
        self.graded: Counter[str] = Counter()
        self.empty_golds = 0

    def add(self, graded: Graded) -> None:
        self.verdicts[graded.verdict] += 1
        self.matches[graded.db_id] += graded.verdict == "match"
        self.graded[graded.db_id] += graded.is_graded
        self.empty_golds += graded.gold_empty

    @property
    def total(self) -> int:
        return self.verdicts.total()

    @property
    def match_rate(self) -> float:
        """Share of matches among the pairs graded; 0 if there are none."""
        return self.matches.total() / max(self.graded.total(), 1)


def print_tally(tally: Tally, stream: TextIO, *, title: str) -> None:
    """Writes the tables: counts by verdict, match rate, match rate by database if they are few."""
    from rich.console import Console
    from rich.table import Table

    counts = Table()
    counts.add_column("verdict")
    for heading in ("pairs", "share"):
        counts.add_column(heading, justify="right")
    for name, count in tally.verdicts.most_common():
        counts.add_row(name, f"{count:,}", f"{count / tally.total:.1%}")
    counts.add_section()
    counts.add_row("all", f"{tally.total:,}", "")

    rates = Table()
    rates.add_column("database")
    for heading in ("match rate", "95 % interval", "pairs graded"):
        rates.add_column(heading, justify="right")
    rates.add_row("all", *_rate(tally.matches.total(), tally.graded.total()))
    if 1 < len(tally.graded) <= _MAX_DATABASES_SHOWN:
        rates.add_section()
        for name in sorted(tally.graded):
            rates.add_row(_printable(name), *_rate(tally.matches[name], tally.graded[name]))

    console = Console(file=stream, markup=False, highlight=False)  # names come from the user's file
    console.print(title, soft_wrap=True)
    console.print(counts)
    console.print(rates)
    if tally.graded.total() < tally.total:
        left = tally.total - tally.graded.total()
        console.print(f"not graded: {left:,} (gold_error, infrastructure); no part of the rates")
    if tally.empty_golds:
        console.print(f"gold result empty: {tally.empty_golds:,}; part of the rates")


def _rate(matches: int, graded: int) -> tuple[str, str, str]:
    if not graded:
        return "", "", "0"
    low, high = wilson(matches, graded)
    return f"{matches / graded:.1%}", f"{low:.1%} to {high:.1%}", f"{graded:,}"


def _printable(name: str) -> str:
    return name if name.isprintable() else ascii(name)
