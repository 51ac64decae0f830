"""Walks over resolved queries: what they hold and what they read."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass

from jax_t2sql.equivalence.symbolic.ir import (
    Aggregate,
    Arithmetic,
    Between,
    Call,
    Case,
    Cast,
    Collate,
    Column,
    Compare,
    Compound,
    Connect,
    Exists,
    Expr,
    InList,
    InQuery,
    IsNull,
    Negate,
    Not,
    Query,
    Scalar,
    Select,
)
from jax_t2sql.sql.schema import fold


def parts(expr: Expr) -> Iterator[Expr]:
    """The expressions right below one, in the order of the text; not those of subqueries."""
    match expr:
        case Compare() | Connect() | Arithmetic():
            yield from (expr.left, expr.right)
        case Not() | IsNull() | Negate() | Cast() | Collate():
            yield expr.operand
        case Between():
            yield from (expr.operand, expr.low, expr.high)
        case Case():
            if expr.base is not None:
                yield expr.base
            for test, value in expr.branches:
                yield from (test, value)
            if expr.otherwise is not None:
                yield expr.otherwise
        case Call():
            yield from expr.args
        case Aggregate():
            yield from filter(None, (expr.operand, expr.only))
        case InList():
            yield expr.operand
            yield from expr.items
        case InQuery():
            yield from expr.operands


def subquery(expr: Expr) -> Query | None:
    """The query right inside an expression."""
    return expr.query if isinstance(expr, InQuery | Exists | Scalar) else None


def expressions(query: Query) -> Iterator[Expr]:
    """All expressions that stand in a query itself, not in the queries of its FROM."""
    if isinstance(query, Select):
        yield from query.items
        yield from query.group
        yield from filter(None, (query.where, query.having))
        yield from (s.condition for s in query.sources if s.condition is not None)
    yield from (sort.key for sort in query.order)


def queries_below(query: Query) -> Iterator[Query]:
    """The queries right inside FROM, a set operation or WITH."""
    if isinstance(query, Compound):
        yield from (query.left, query.right)
    else:
        yield from (s.query for s in query.sources if s.query is not None)


def columns(expr: Expr) -> Iterator[Column]:
    """Every column that an expression reads, those read in its subqueries included."""
    if isinstance(expr, Column):
        yield expr
    for part in parts(expr):
        yield from columns(part)
    inner = subquery(expr)
    if inner is not None:
        yield from query_columns(inner)


def query_columns(query: Query) -> Iterator[Column]:
    """Every column that a query reads, at all depths."""
    for expr in expressions(query):
        yield from columns(expr)
    for inner in queries_below(query):
        yield from query_columns(inner)


def has_aggregate(expr: Expr) -> bool:
    """Whether an aggregate of the query around it stands in an expression."""
    return isinstance(expr, Aggregate) or any(has_aggregate(part) for part in parts(expr))


def has_collate(expr: Expr) -> bool:
    """Whether a COLLATE stands in an expression, outside its subqueries."""
    return isinstance(expr, Collate) or any(has_collate(part) for part in parts(expr))


def gives_collation(query: Query) -> bool:
    """Whether a result column of a query brings a collation of its own to a comparison."""
    if isinstance(query, Compound):
        return gives_collation(query.left) or gives_collation(query.right)
    named = any(output.collation != "BINARY" for output in query.outputs)
    return named or any(map(has_collate, query.items))


def is_single_row(query: Query) -> bool:
    """Whether a query gives at most one row whatever the database holds."""
    if isinstance(query, Compound) or query.group:
        return False
    return not query.sources or any(map(has_aggregate, query.items))


def tables_of(query: Query) -> set[str]:
    """Folded names of the stored tables that a query reads."""
    found: set[str] = set()
    if isinstance(query, Select):
        found |= {fold(s.table) for s in query.sources if s.table is not None}
    for inner in queries_below(query):
        found |= tables_of(inner)
    stack = list(expressions(query))
    while stack:
        expr = stack.pop()
        inner = subquery(expr)
        if inner is not None:
            found |= tables_of(inner)
        stack += parts(expr)
    return found


def rebuilt(node, change: Callable):
    """A tree with each of its nodes changed, from the leaves up."""
    if isinstance(node, tuple):
        return tuple(rebuilt(part, change) for part in node)
    if not is_dataclass(node):
        return node
    new = {field.name: rebuilt(getattr(node, field.name), change) for field in fields(node)}
    return change(type(node)(**new))
