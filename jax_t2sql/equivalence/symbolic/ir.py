"""Queries with every name resolved: what the symbolic evaluation works on.

Equality of these trees is equality of meaning up to the numbers of the sources.
"""

from dataclasses import dataclass
from typing import Literal

from jax_t2sql.equivalence.symbolic.values import SqlValue


@dataclass(frozen=True)
class Constant:
    """A literal."""

    value: SqlValue

    def __eq__(self, other: object) -> bool:  # Python holds 1 == 1.0
        return (
            isinstance(other, Constant)
            and type(other.value) is type(self.value)
            and other.value == self.value
        )

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True)
class Column:
    """A column of a source of this query or of one around it.

    Attributes:
      affinity: "INTEGER", "REAL", "NUMERIC", "TEXT", "BLOB" (a column's, if it has no type) or
        None (an expression's).
      of_table: whether the source is a stored table.
    """

    source: int
    index: int
    name: str
    affinity: str | None
    collation: str = "BINARY"
    of_table: bool = True


@dataclass(frozen=True)
class Compare:
    op: Literal["=", "<>", "<", "<=", ">", ">=", "IS", "IS NOT"]
    left: "Expr"
    right: "Expr"


@dataclass(frozen=True)
class Connect:
    op: Literal["AND", "OR"]
    left: "Expr"
    right: "Expr"


@dataclass(frozen=True)
class Not:
    operand: "Expr"


@dataclass(frozen=True)
class IsNull:
    operand: "Expr"
    negated: bool = False


@dataclass(frozen=True)
class Between:
    operand: "Expr"
    low: "Expr"
    high: "Expr"


@dataclass(frozen=True)
class Arithmetic:
    op: Literal["+", "-", "*", "/", "%", "||", "&", "|", "<<", ">>"]
    left: "Expr"
    right: "Expr"


@dataclass(frozen=True)
class Negate:
    operand: "Expr"


@dataclass(frozen=True)
class Cast:
    operand: "Expr"
    type: str
    affinity: str


@dataclass(frozen=True)
class Collate:
    operand: "Expr"
    collation: str


@dataclass(frozen=True)
class Case:
    base: "Expr | None"
    branches: tuple[tuple["Expr", "Expr"], ...]
    otherwise: "Expr | None"


@dataclass(frozen=True)
class Call:
    """A scalar function; `infix` where it is written as LIKE or GLOB."""

    name: str
    args: tuple["Expr", ...]
    infix: bool = False


@dataclass(frozen=True)
class Aggregate:
    """An aggregate; `operand` is None for count(*)."""

    name: Literal["count", "sum", "total", "avg", "min", "max"]
    operand: "Expr | None"
    distinct: bool = False
    only: "Expr | None" = None


@dataclass(frozen=True)
class InList:
    operand: "Expr"
    items: tuple["Expr", ...]


@dataclass(frozen=True)
class InQuery:
    operands: tuple["Expr", ...]
    query: "Query"


@dataclass(frozen=True)
class Exists:
    query: "Query"


@dataclass(frozen=True)
class Scalar:
    query: "Query"


Expr = (
    Constant | Column | Compare | Connect | Not | IsNull | Between | Arithmetic | Negate | Cast
    | Collate | Case | Call | Aggregate | InList | InQuery | Exists | Scalar
)  # fmt: skip


@dataclass(frozen=True)
class Output:
    """What is known of a result column from outside."""

    name: str
    affinity: str | None
    collation: str


@dataclass(frozen=True)
class Source:
    """An element of FROM.

    Attributes:
      id: unique in the whole statement.
      table: the name of a stored table, or None; then `query` is the subquery or common table.
      cte: for a common table: its name.
      join: how it is joined to what stands before it; a comma may read as CROSS.
      condition: all that ON, USING and NATURAL ask.
    """

    id: int
    table: str | None
    query: "Query | None"
    cte: str | None
    columns: tuple[Output, ...]
    join: Literal["INNER", "CROSS", "LEFT"]
    condition: Expr | None = None


@dataclass(frozen=True)
class Sort:
    key: Expr
    descending: bool
    nulls_first: bool
    # As it stands in the text: the number of a result column, or None for an expression.
    position: int | None = None


@dataclass(frozen=True)
class Select:
    """One SELECT. `implicit_limit`: the LIMIT 1 of a scalar subquery, not in the text."""

    sources: tuple[Source, ...]
    items: tuple[Expr, ...]
    outputs: tuple[Output, ...]
    where: Expr | None = None
    group: tuple[Expr, ...] = ()
    having: Expr | None = None
    distinct: bool = False
    order: tuple[Sort, ...] = ()
    limit: Expr | None = None
    offset: Expr | None = None
    ctes: tuple[tuple[str, "Query"], ...] = ()
    implicit_limit: bool = False


@dataclass(frozen=True)
class Compound:
    """Two queries joined by a set operation. Sort keys are result columns: `position` is set."""

    op: Literal["UNION", "UNION ALL", "INTERSECT", "EXCEPT"]
    left: "Query"
    right: "Query"
    outputs: tuple[Output, ...]
    order: tuple[Sort, ...] = ()
    limit: Expr | None = None
    offset: Expr | None = None
    ctes: tuple[tuple[str, "Query"], ...] = ()
    implicit_limit: bool = False


Query = Select | Compound
