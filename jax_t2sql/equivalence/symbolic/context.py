"""What an evaluation carries along: graph, tables, and when the answer is left to chance."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from jax_t2sql.equivalence.symbolic.errors import Unsupported
from jax_t2sql.equivalence.symbolic.ir import Query
from jax_t2sql.equivalence.symbolic.terms import Term, Terms
from jax_t2sql.equivalence.symbolic.values import Val

Cells = tuple[Val, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A row that may be there.

    Attributes:
      present: whether it is.
      cells: its values.
      keys: the values it is sorted by, for rows of an ordered query.
    """

    present: Term
    cells: Cells
    keys: Cells = ()


@dataclass(frozen=True)
class Group:
    """Rows that an aggregate runs over: whether each belongs, and its environment."""

    members: tuple[tuple[Term, "Env"], ...]


@dataclass(frozen=True)
class Env:
    """The rows that names refer to.

    Attributes:
      cells: the values of each source in scope, by its id.
      here: whether this combination of rows comes about at all.
      group: what aggregates run over, where they may stand.
    """

    cells: dict[int, Cells]
    here: Term
    group: Group | None = None


@dataclass
class Context:
    """One evaluation.

    Attributes:
      t: the graph.
      tables: rows of the stored tables, by folded name.
      rows_of: evaluates a subquery.
      bound: rows that a stored table has at most; a LIMIT above it is not looked into.
      max_rows: more possible rows than this are refused.
      deadline: `time.thread_time()` after which the evaluation gives up.
      exact_sums: whether the last bits of a sum of REALs count, which depend on their order.
      doubts: conditions under which SQLite is free to answer in several ways.
      wishes: what a model had better fulfil: that functions left open give what they mostly give.
      smallness: that numbers which texts spell are small, as `small_numbers` asks of the others.
      memo: rows and doubts of subqueries, by the query's id and the outer rows that they read.
      reads: the sources that a query reads.
    """

    t: Terms
    tables: dict[str, list[Row]]
    rows_of: "Callable[[Context, Query, Env], list[Row]]"
    bound: int = 1_000
    max_rows: int = 1_000
    deadline: float = float("inf")
    exact_sums: bool = False
    doubts: list[Term] = field(default_factory=list)
    wishes: list[Term] = field(default_factory=list)
    smallness: list[Term] = field(default_factory=list)
    memo: dict[tuple, tuple[list[Row], Term]] = field(default_factory=dict)
    reads: dict[int, frozenset[int]] = field(default_factory=dict)

    def doubt(self, *conditions: Term) -> None:
        """Notes that the answer is left to chance where all the conditions hold."""
        condition = self.t.and_(*conditions)
        if condition is not self.t.false:
            self.doubts.append(condition)

    def allow(self, rows: int) -> None:
        """Refuses more rows than are allowed, and to go on after the deadline."""
        if rows > self.max_rows:
            raise Unsupported(f"more than {self.max_rows} possible rows at this bound")
        if time.thread_time() > self.deadline:
            raise Unsupported("building the formula took too long")
