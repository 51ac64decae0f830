"""What the pool asks of a worker process, and what it is told back."""

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from jax_t2sql.sql import Limits, Mode

if TYPE_CHECKING:
    from jax_t2sql.grading.verdict import Verdict


# Sent to every process of a job, or of a terminal; a worker heeds none and ends with its owner.
LEFT_TO_OWNER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Settings:
    """The first message to a worker.

    Attributes:
      limits: of each query but golds.
      gold_limits: of gold queries; wider.
      column_order: whether predicted columns may stand in another order.
      memory_bytes: address space that the process may have.
      gold_folder: where results of golds are kept between runs, if anywhere.
      rel_tol: relative tolerance between two numbers of which one is REAL.
    """

    limits: Limits
    gold_limits: Limits
    column_order: Literal["position", "any"]
    memory_bytes: int
    gold_folder: str | None = None
    rel_tol: float = 1e-9


@dataclass(frozen=True)
class Execute:
    """Run a query. Answer: an Outcome."""

    path: str
    sql: str


@dataclass(frozen=True)
class Grade:
    """Compare a predicted query's result with the gold's. Answer: a Verdict."""

    path: str
    gold_sql: str
    pred_sql: str
    mode: Mode


@dataclass(frozen=True)
class Assess:
    """Compare a predicted query's result with the gold's in several modes, having run it once.

    Answer: an Assessment; or a Verdict, where the request as a whole came to nothing.
    """

    path: str
    gold_sql: str
    pred_sql: str
    modes: tuple[Mode, ...]


@dataclass(frozen=True)
class CheckGold:
    """Find out whether a gold query can serve. Answer: a Verdict, "equal" if so."""

    path: str
    gold_sql: str
    mode: Mode


@dataclass(frozen=True)
class Probe:
    """Decide whose fault it was that a prediction took its worker with it.

    Answer: the Verdict given, if the gold query still runs; else "infrastructure".
    """

    path: str
    gold_sql: str
    verdict: "Verdict"


@dataclass(frozen=True, kw_only=True)
class EquivalenceRule:
    """How pairs are checked for equivalence.

    Attributes:
      method: "check": search for a small database that tells them apart, then proof.
        "perturbation": perturbed copies of the real database alone.
      seconds: processor time of a check.
      bound: rows a table up to which a proof is tried.
      strictness: which databases count: any that the schema allows, or only "realistic" ones, whose
        values look like the real ones.
      copies: perturbed copies of the database ("perturbation").
    """

    method: Literal["check", "perturbation"] = "check"
    seconds: float = 1.5
    bound: int = 2
    strictness: Literal["any", "realistic"] = "any"
    copies: int = 10


@dataclass(frozen=True)
class CheckEquivalence:
    """Find out whether two queries are equivalent. Answer: an equivalence verdict.

    Attributes:
      schema: DDL, or the path of the database.
      database: the real database, where there is one: a source of rows.
    """

    gold_sql: str
    pred_sql: str
    mode: Mode
    schema: str
    database: str | None
    rule: EquivalenceRule


Request = Execute | Grade | Assess | CheckGold | Probe | CheckEquivalence

# The bounded pieces that requests are made of; the clock starts anew with each.
Stage = Literal["gold", "prediction", "probe", "comparison", "equivalence"]


@dataclass(frozen=True)
class Failed:
    """A request met an exception that is no verdict.

    Attributes:
      message: what a person needs to know.
      is_users: whether it is a UserError (a missing database, say), to be raised as such.
    """

    message: str
    is_users: bool
