"""Comparisons in a query: columns with columns, and columns with literals."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot import exp

from jax_t2sql.sql.schema import fold

PREDICATES = (
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.Like, exp.Glob, exp.In,
    exp.Between, exp.NullSafeEQ, exp.NullSafeNEQ,
)  # fmt: skip
OPERATORS = {
    exp.EQ: "=", exp.NEQ: "!=", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=",
    exp.Is: "=", exp.Like: "LIKE", exp.Glob: "GLOB", exp.In: "IN", exp.Between: "BETWEEN",
    exp.NullSafeEQ: "=", exp.NullSafeNEQ: "!=",
}  # fmt: skip
# Around a subquery: what takes all of its rows.
_TAKES_ALL = (exp.From, exp.Join, exp.In, exp.Exists, exp.CTE, exp.SetOperation)
_TRANSPARENT = (exp.Paren, exp.Neg, exp.Tuple, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Not)


# A column of one occurrence of a table: (number of the occurrence, folded name).
Ref = tuple[int, str]


@dataclass(frozen=True)
class Atom:
    """One comparison.

    Attributes:
      operator: "=", "!=", "<", "<=", ">", ">=", "IN", "BETWEEN", "LIKE", "GLOB".
      refs: the columns in it.
      direct: literals that are compared as they stand.
      inner: literals that are arguments of functions in it.
      calls: folded names of the functions around columns and literals.
      counted: whether it compares a COUNT.
    """

    operator: str
    refs: tuple[Ref, ...]
    direct: tuple[object, ...] = ()
    inner: tuple[object, ...] = ()
    calls: tuple[str, ...] = ()
    counted: bool = False


@dataclass
class Outline:
    """What was read.

    Attributes:
      tables: folded table name of each occurrence, in the order of reading.
      equal: pairs of columns that are compared for equality.
      unequal: pairs of columns that are compared otherwise.
      atoms: comparisons with literals.
      sizes: counts of rows that LIMIT, OFFSET and comparisons of COUNT name.
      bare: whether some column stands beside an aggregate or GROUP BY that does not fix its value,
        or SQLite takes the value of one row of several that a subquery gives; taken for so where
        the query cannot be read.
    """

    tables: list[str] = field(default_factory=list)
    equal: list[tuple[Ref, Ref]] = field(default_factory=list)
    unequal: list[tuple[Ref, Ref]] = field(default_factory=list)
    atoms: list[Atom] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    bare: bool = False


def walk(node: exp.Expression) -> Iterator[exp.Expression]:
    """The parts of an expression; of a subquery the top alone."""
    return node.walk(prune=lambda part: isinstance(part, (exp.Query, exp.Subquery)))


def walk_operand(node: exp.Expression, direct: bool = True) -> Iterator[tuple]:
    """Parts of an operand, each with whether no function stands around it."""
    yield node, direct
    if isinstance(node, (exp.Query, exp.Subquery)):
        return
    below = direct and isinstance(node, _TRANSPARENT)
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal):
        return
    for child in node.iter_expressions():
        yield from walk_operand(child, below)


def has_bare_columns(node: exp.Select) -> bool:
    """Whether a SELECT that groups shows, or sorts by, columns that it does not group by."""
    parts = list(node.expressions)
    parts += [node.args[key] for key in ("having", "order") if node.args.get(key)]
    group = node.args.get("group")
    keys = {key.sql() for key in group.expressions} if group else set()
    for number, item in enumerate(node.expressions if keys else (), start=1):
        if str(number) in keys or item.alias in keys:
            keys.add(item.unalias().sql())
    found = [piece for part in parts for piece in _walk_outside(part, keys)]
    if group is None and not any(isinstance(piece, exp.AggFunc) for piece in found):
        return False
    return any(isinstance(piece, (exp.Column, exp.Star)) for piece in found)


def picks_a_row(node: exp.Query) -> bool:
    """Whether a query stands for a value and may give rows of which SQLite then takes one."""
    around = node.parent
    while isinstance(around, (exp.Subquery, exp.Paren)):
        around = around.parent
    if around is None or isinstance(around, _TAKES_ALL):
        return False
    grouped = isinstance(node, exp.SetOperation) or node.args.get("group")
    return bool(grouped) or not any(
        isinstance(piece, exp.AggFunc) for item in node.expressions for piece in walk(item)
    )


def _walk_outside(node: exp.Expression, keys: set[str]) -> Iterator[exp.Expression]:
    """Parts of an expression that are in no aggregate, no subquery and no group key."""
    if keys and node.sql() in keys:
        return
    yield node
    if not isinstance(node, (exp.AggFunc, exp.Query, exp.Subquery)):
        for child in node.iter_expressions():
            yield from _walk_outside(child, keys)


def literal_of(node: exp.Expression | None) -> object:
    """The value of a literal, None for anything else."""
    if isinstance(node, exp.Paren):
        return literal_of(node.this)
    if isinstance(node, exp.Neg):
        value = literal_of(node.this)
        return -value if isinstance(value, (int, float)) else None
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string:
        return node.this
    try:
        return int(node.this)
    except ValueError:
        try:
            return float(node.this)
        except ValueError:
            return None


def called(node: exp.Func) -> str:
    return fold(node.name if isinstance(node, exp.Anonymous) else node.key)
