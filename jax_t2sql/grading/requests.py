"""What the pool asks of a worker process, and what it is told back."""

from dataclasses import dataclass
from typing import Literal

from jax_t2sql.sql import Limits, Mode


@dataclass(frozen=True)
class Settings:
    """The first message to a worker.

    Attributes:
      limits: of each query.
      column_order: whether predicted columns may stand in another order.
      memory_bytes: address space that the process may have.
    """

    limits: Limits
    column_order: Literal["position", "any"]
    memory_bytes: int


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
class CheckGold:
    """Find out whether a gold query can serve. Answer: a Verdict, "equal" if so."""

    path: str
    gold_sql: str
    mode: Mode


Request = Execute | Grade | CheckGold

Stage = Literal["gold", "prediction", "probe", "comparison"]


@dataclass(frozen=True)
class Started:
    """A worker's note that the next bounded piece of a request begins: its clock starts anew."""

    stage: Stage


@dataclass(frozen=True)
class Failed:
    """A request met an exception that is no verdict.

    Attributes:
      message: what a person needs to know.
      is_users: whether it is a UserError (a missing database, say), to be raised as such.
    """

    message: str
    is_users: bool
