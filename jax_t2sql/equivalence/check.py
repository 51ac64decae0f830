"""The check of a pair of queries: search first, then proof, and no refutation without replay."""

import os
import time
from dataclasses import dataclass
from typing import Literal

from jax_t2sql.equivalence.catalog import Catalog, read_catalog
from jax_t2sql.equivalence.search import search
from jax_t2sql.equivalence.verdict import Verdict, refuted, unknown
from jax_t2sql.sql.modes import Mode, parse_mode

Strictness = Literal["any", "realistic"]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a check may cost.

    Attributes:
      seconds: processor time in all, search and proof together.
      bound: rows a table up to which equivalence is to be proved.
    """

    seconds: float = 1.5
    bound: int = 2

    def __post_init__(self) -> None:
        for name in ("seconds", "bound"):
            if not getattr(self, name) > 0:
                raise ValueError(f"Budget.{name} is {getattr(self, name)!r}; it must be above 0")


def check(
    gold: str,
    pred: str,
    schema: Catalog | str | os.PathLike,
    *,
    grading: Mode | str | None = "set",
    budget: Budget | None = None,
    database: str | os.PathLike | None = None,
    strictness: Strictness = "any",
    seed: int = 0,
) -> Verdict:
    """Are two queries equivalent under a grading mode?"""
    start = time.process_time()
    budget = budget or Budget()
    mode = grading if isinstance(grading, Mode) else parse_mode(grading)
    catalog = schema if isinstance(schema, Catalog) else read_catalog(schema)
    found = search(gold, pred, catalog, mode=mode, seconds=0.6 * budget.seconds, seed=seed)
    spent = time.process_time() - start
    if found.refutation is not None:
        r = found.refutation
        return refuted(
            reason=_difference(r, mode),
            source="search",
            database=r.database,
            gold=r.gold,
            pred=r.pred,
            cpu_seconds=spent,
        )
    return unknown(found.reason, cpu_seconds=spent)


def _difference(refutation, mode: Mode) -> str:
    gold, pred = refutation.gold, refutation.pred
    return (
        f"gold gives {len(gold.rows)} rows of {len(gold.columns)} columns, the prediction"
        f" {len(pred.rows)} of {len(pred.columns)}, which differ under {mode}"
    )
