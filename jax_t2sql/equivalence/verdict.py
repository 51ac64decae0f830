"""What is known about a pair of queries after a check."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["refuted", "equivalent", "unknown"]
Source = Literal["syntax", "search", "real-rows", "proof", "perturbation"]


@dataclass(frozen=True)
class Answer:
    """What one query gives on the counterexample."""

    columns: tuple[str, ...]
    rows: Sequence[tuple] = field(repr=False)


@dataclass(frozen=True)
class Verdict:
    """The verdict on one pair. Built by `refuted`, `equivalent` and `unknown`.

    Attributes:
      kind: "refuted": on `database`, which satisfies the declared constraints, the two queries
        differ in real SQLite under the grading mode. "equivalent": they differ on no database with
        at most `bound` rows a table; on none at all where `bound` is None. "unknown": neither was
        found; says nothing about the queries.
      reason: one sentence for a person.
      source: which method found it: "syntax" (one text after normalisation), "search" (made-up
        rows), "real-rows" (rows of the real database), "proof" (the solver; also a counterexample
        of its), "perturbation" (a perturbed copy of the real database). None if unknown.
      database: the counterexample as an SQL script: DDL, then INSERTs.
      gold, pred: what the two queries give on it.
      cpu_seconds: processor time of the check.
      broken: perturbation alone: share of the copies on which the match breaks.
    """

    kind: Kind
    reason: str = ""
    source: Source | None = None
    bound: int | None = None
    database: str | None = field(default=None, repr=False)
    gold: Answer | None = None
    pred: Answer | None = None
    cpu_seconds: float = 0.0
    broken: float | None = None


def refuted(
    *,
    reason: str,
    source: Source,
    database: str,
    gold: Answer,
    pred: Answer,
    cpu_seconds: float = 0.0,
    broken: float | None = None,
) -> Verdict:
    """The queries differ on this database."""
    return Verdict(
        "refuted",
        reason,
        source,
        database=database,
        gold=gold,
        pred=pred,
        cpu_seconds=cpu_seconds,
        broken=broken,
    )


def equivalent(
    *, reason: str, source: Source, bound: int | None = None, cpu_seconds: float = 0.0
) -> Verdict:
    """The queries agree on all databases up to a bound; on all there are where it is None."""
    return Verdict("equivalent", reason, source, bound=bound, cpu_seconds=cpu_seconds)


def unknown(reason: str, *, cpu_seconds: float = 0.0, broken: float | None = None) -> Verdict:
    """Neither a counterexample nor a proof was found."""
    return Verdict("unknown", reason, cpu_seconds=cpu_seconds, broken=broken)
