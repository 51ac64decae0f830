"""Walks over resolved queries: what they hold and what they read."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass

from jax_t2sql.equivalence.symbolic import ir
from jax_t2sql.sql.schema import fold


def parts(expr: ir.Expr) -> Iterator[ir.Expr]:
    """The expressions right below one, in the order of the text; not those of subqueries."""
    match expr:
        case ir.Compare() | ir.Connect() | ir.Arithmetic():
            yield from (expr.left, expr.right)
        case ir.Not() | ir.IsNull() | ir.Negate() | ir.Cast() | ir.Collate():
            yield expr.operand
        case ir.Between():
            yield from (expr.operand, expr.low, expr.high)
        case ir.Case():
            if expr.base is not None:
                yield expr.base
            for test, value in expr.branches:
                yield from (test, value)
            if expr.otherwise is not None:
                yield expr.otherwise
        case ir.Call():
            yield from expr.args
        case ir.Aggregate():
            yield from filter(None, (expr.operand, expr.only))
        case ir.InList():
            yield expr.operand
            yield from expr.items
        case ir.InQuery():
            yield from expr.operands


def subquery(expr: ir.Expr) -> ir.Query | None:
    """The query right inside an expression."""
    return expr.query if isinstance(expr, ir.InQuery | ir.Exists | ir.Scalar) else None


def expressions(query: ir.Query) -> Iterator[ir.Expr]:
    """All expressions that stand in a query itself, not in the queries of its FROM."""
    if isinstance(query, ir.Select):
        yield from query.items
        yield from query.group
        yield from filter(None, (query.where, query.having))
        yield from (s.condition for s in query.sources if s.condition is not None)
    yield from (sort.key for sort in query.order)


def queries_below(query: ir.Query) -> Iterator[ir.Query]:
    """The queries right inside FROM, a set operation or WITH."""
    if isinstance(query, ir.Compound):
        yield from (query.left, query.right)
    else:
        yield from (s.query for s in query.sources if s.query is not None)


def columns(expr: ir.Expr) -> Iterator[ir.Column]:
    """Every column that an expression reads, those read in its subqueries included."""
    if isinstance(expr, ir.Column):
        yield expr
    for part in parts(expr):
        yield from columns(part)
    inner = subquery(expr)
    if inner is not None:
        yield from query_columns(inner)


def query_columns(query: ir.Query) -> Iterator[ir.Column]:
    """Every column that a query reads, at all depths."""
    for expr in expressions(query):
        yield from columns(expr)
    for inner in queries_below(query):
        yield from query_columns(inner)


def has_aggregate(expr: ir.Expr) -> bool:
    """Whether an aggregate of the query around it stands in an expression."""
    return isinstance(expr, ir.Aggregate) or any(has_aggregate(part) for part in parts(expr))


def has_collate(expr: ir.Expr) -> bool:
    """Whether a COLLATE stands in an expression, outside its subqueries."""
    return isinstance(expr, ir.Collate) or any(has_collate(part) for part in parts(expr))


def has_pattern(expr: ir.Expr) -> bool:
    """Whether a LIKE or GLOB stands in an expression, outside its subqueries."""
    found = isinstance(expr, ir.Call) and expr.name in ("like", "glob")
    return found or any(map(has_pattern, parts(expr)))


def gives_collation(query: ir.Query) -> bool:
    """Whether a result column of a query brings a collation of its own to a comparison."""
    if isinstance(query, ir.Compound):
        return gives_collation(query.left) or gives_collation(query.right)
    named = any(output.collation != "BINARY" for output in query.outputs)
    return named or any(map(has_collate, query.items))


def is_single_row(query: ir.Query) -> bool:
    """Whether a query gives at most one row whatever the database holds."""
    if isinstance(query, ir.Compound) or query.group:
        return False
    return not query.sources or any(map(has_aggregate, query.items))


def tables_of(query: ir.Query) -> set[str]:
    """Folded names of the stored tables that a query reads."""
    found: set[str] = set()
    if isinstance(query, ir.Select):
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
