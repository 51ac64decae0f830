"""The check of a pair of queries: execute first, prove the rest, believe nothing unreplayed."""

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal

from jax_t2sql.equivalence.catalog import Catalog, read_catalog
from jax_t2sql.equivalence.normalise import twins
from jax_t2sql.equivalence.real import RealRows
from jax_t2sql.equivalence.search import Found, Search
from jax_t2sql.equivalence.symbolic import Model, NoProof, Proof, Proved, prove
from jax_t2sql.equivalence.verdict import Verdict, equivalent, refuted, unknown
from jax_t2sql.errors import UserError
from jax_t2sql.sql.modes import Mode, parse_mode

Strictness = Literal["any", "realistic"]

# Most pairs that differ do so on one of the first databases: these cost less than reading the
# queries closely.
_FIRST = 60
# Shares of the time: search before the proof is tried, the proof, and search after a proof, as
# counterexamples may need more rows than it looked at. Search around a proof has its fill sooner.
_BEFORE, _PROOF, _AFTER = 0.15, 0.4, 0.15
_FILL = 0.5  # seconds


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a check may cost.

    Attributes:
      seconds: processor time of the calling thread, search and proof together; confirming what was
        found at the last moment may add half a second.
      bound: rows a table up to which equivalence is to be proved; 0 leaves the proof out.
    """

    seconds: float = 1.5
    bound: int = 2

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ValueError(f"Budget.seconds is {self.seconds!r}; it must be above 0")
        if not 0 <= self.bound <= 10:
            raise ValueError(f"Budget.bound is {self.bound!r}; it must be from 0 to 10")


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
    """Tells a right query from a lucky one.

    Args:
      gold, pred: the two queries, one statement each.
      schema: a catalog, DDL text, or the path of a database file.
      grading: the mode under which results are compared.
      budget: of time, and of rows a table for the proof.
      database: the real database; its rows are a second source of counterexamples.
      strictness: "realistic" counts no counterexample but those whose values are all found in the
        real database, in the same columns; a column without NULLs or duplicates there has none.
      seed: of the search.

    Returns: refuted with a database on which the two differ in real SQLite under the grading mode,
      whatever SQLite is free to choose; equivalent up to a bound; or unknown, with the reason.

    Raises:
      UserError: the schema does not load, the mode is unknown, or "realistic" without a database.
    """
    start = time.thread_time()
    budget = budget or Budget()
    mode = grading if isinstance(grading, Mode) else parse_mode(grading)
    if strictness not in ("any", "realistic"):
        raise UserError(f'strictness is {strictness!r}; use "any" or "realistic"')
    if strictness == "realistic" and database is None:
        raise UserError('strictness "realistic" needs the real database; give its path')
    catalog = schema if isinstance(schema, Catalog) else read_catalog(schema)
    with ExitStack() as stack:
        real = stack.enter_context(RealRows(database)) if database is not None else None
        search = stack.enter_context(
            Search(
                gold,
                pred,
                catalog,
                mode=mode,
                seed=seed,
                real=real,
                realistic=strictness == "realistic",
            )
        )
        verdict = _verdict(search, gold, pred, catalog, mode, budget, strictness, start)
    return replace(verdict, cpu_seconds=time.thread_time() - start)


def _verdict(
    search: Search,
    gold: str,
    pred: str,
    catalog: Catalog,
    mode: Mode,
    budget: Budget,
    strictness: Strictness,
    start: float,
) -> Verdict:
    if search.unfit:
        return unknown(search.unfit)
    end = start + budget.seconds
    found = search.run(end, databases=_FIRST)
    if found is None and twins(gold, pred, catalog, mode):
        return equivalent(reason="the two are one query, written in two ways", source="syntax")
    if found is None:
        before = min(_BEFORE * budget.seconds, _FILL) if budget.bound else budget.seconds
        found = search.run(start + before)
    proof = None
    if found is None and budget.bound and time.thread_time() < end:
        seconds = _PROOF * budget.seconds
        proof = prove(gold, pred, catalog, mode=mode, bound=budget.bound, seconds=seconds)
        if isinstance(proof, Model) and strictness == "any":
            found = search.propose(proof.rows, "proof", deadline=end)
    if found is None:
        # A proof says little where no query gives a row, or where they speak of more rows than it
        # allows.
        enough = isinstance(proof, Proved) and not proof.empty and search.asks < budget.bound
        more = min(_AFTER * budget.seconds, _FILL) if enough else budget.seconds
        found = search.run(min(end, time.thread_time() + more))
    if found is not None:
        return _refuted(found, mode)
    return _open(search.reason, proof, strictness)


def _open(reason: str, proof: Proof | None, strictness: Strictness) -> Verdict:
    """The verdict where no database was found."""
    if isinstance(proof, Proved):
        reason = f"no database of up to {proof.bound} rows a table tells them apart"
        if proof.empty:
            reason += ", but on none of these does either give a row"
        if proof.largest is not None:
            reason += f"; numbers above {proof.largest:,} left aside"
        return equivalent(reason=reason, source="proof", bound=proof.bound)
    if isinstance(proof, NoProof):
        return unknown(f"{reason}; no proof: {proof.reason}")
    if isinstance(proof, Model):
        if strictness == "realistic":
            return unknown(f"{reason}; the solver's database is not made of real values")
        return unknown(f"{reason}; the solver's database shows no difference in a replay")
    return unknown(reason)


def _refuted(found: Found, mode: Mode) -> Verdict:
    result = found.refutation
    gold, pred = result.gold, result.pred
    reason = (
        f"gold gives {len(gold.rows)} rows of {len(gold.columns)} columns, the prediction"
        f" {len(pred.rows)} of {len(pred.columns)}, which differ under {mode}"
    )
    return refuted(
        reason=reason, source=found.source, database=result.database, gold=gold, pred=pred
    )
