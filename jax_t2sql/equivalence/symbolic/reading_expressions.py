"""From sqlglot's expressions to expressions with all names resolved."""

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from jax_t2sql.equivalence.symbolic import functions, ir
from jax_t2sql.equivalence.symbolic.errors import Unsupported
from jax_t2sql.equivalence.symbolic.opaque import compute
from jax_t2sql.equivalence.symbolic.scope import Scope
from jax_t2sql.equivalence.symbolic.walking import (
    columns,
    gives_collation,
    has_aggregate,
    has_collate,
)
from jax_t2sql.sql.schema import fold

_COMPARISONS = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.NullSafeEQ: "IS", exp.NullSafeNEQ: "IS NOT",
}  # fmt: skip
_ARITHMETIC = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.DPipe: "||",
    exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
}  # fmt: skip
_CONNECTIVES = {exp.And: "AND", exp.Or: "OR"}
_AGGREGATES = ("count", "sum", "total", "avg", "min", "max")
_CAST_AFFINITIES = {
    "INT": "INTEGER", "BIGINT": "INTEGER", "SMALLINT": "INTEGER", "TINYINT": "INTEGER",
    "TEXT": "TEXT", "VARCHAR": "TEXT", "CHAR": "TEXT", "NCHAR": "TEXT", "NVARCHAR": "TEXT",
    "DOUBLE": "REAL", "FLOAT": "REAL", "DECIMAL": "NUMERIC", "DATE": "NUMERIC",
    "DATETIME": "NUMERIC", "BOOLEAN": "NUMERIC",
}  # fmt: skip

ReadQuery = Callable[[exp.Expression], ir.Query]


def read_expression(node: exp.Expression, scope: Scope, query: ReadQuery) -> ir.Expr:
    """An expression.

    Args:
      node: sqlglot's.
      scope: what names mean.
      query: reads a subquery that stands in it.

    Raises:
      Unsupported: it holds something that is not modelled.
    """

    def read(inner: exp.Expression) -> ir.Expr:
        return read_expression(inner, scope, query)

    kind = type(node)
    if kind in _COMPARISONS:
        _refuse_rows(node)
        if kind in (exp.NullSafeEQ, exp.NullSafeNEQ) and isinstance(node.expression, exp.Boolean):
            raise Unsupported("IS TRUE and IS FALSE")
        return ir.Compare(_COMPARISONS[kind], read(node.this), read(node.expression))
    if kind in _ARITHMETIC:
        return ir.Arithmetic(_ARITHMETIC[kind], read(node.this), read(node.expression))
    if kind in _CONNECTIVES:
        return ir.Connect(_CONNECTIVES[kind], read(node.this), read(node.expression))
    match node:
        case exp.Paren():
            return read(node.this)
        case exp.Literal():
            return ir.Constant(node.this) if node.is_string else _number(node.this)
        case exp.HexString():
            return ir.Constant(bytes.fromhex(node.this))
        case exp.Null():
            return ir.Constant(None)
        case exp.Boolean():
            return ir.Constant(int(node.this))
        case exp.Column():
            return _column(node, scope)
        case exp.Not():
            inner = read(node.this)
            return replace(inner, negated=True) if _is_null_test(node.this) else ir.Not(inner)
        case exp.Neg():
            return ir.Negate(read(node.this))
        case exp.Is():
            if not isinstance(node.expression, exp.Null):
                raise Unsupported("IS TRUE and IS FALSE")
            return ir.IsNull(read(node.this))
        case exp.Between():
            _refuse_symmetric(node)
            return ir.Between(read(node.this), read(node.args["low"]), read(node.args["high"]))
        case exp.In():
            return _in(node, read, query)
        case exp.Exists():
            return ir.Exists(query(node.this))
        case exp.Subquery():
            return _scalar(query(node))
        case exp.Cast():
            return _cast(node, read)
        case exp.Collate():
            return ir.Collate(read(node.this), collation_name(node))
        case exp.Case():
            branches = tuple((read(i.this), read(i.args["true"])) for i in node.args["ifs"])
            base, otherwise = (node.args.get(part) for part in ("this", "default"))
            return ir.Case(base and read(base), branches, otherwise and read(otherwise))
        case exp.Like() | exp.Glob() | exp.Escape():
            return _like(node, read)
        case exp.Filter():
            inner = read(node.this)
            if not isinstance(inner, ir.Aggregate):
                raise Unsupported("FILTER of no aggregate")
            return replace(inner, only=read(node.expression.this))
        case exp.Anonymous():
            return _call(node, read, scope)
    raise Unsupported(_spoken(node))


def _spoken(node: exp.Expression) -> str:
    names = {
        "Window": "a window function",
        "Tuple": "a row value",
        "CurrentDate": "the current time",
        "CurrentTime": "the current time",
        "CurrentTimestamp": "the current time",
        "JSONExtract": "-> and ->>",
        "JSONExtractScalar": "-> and ->>",
        "Select": "a SELECT without parentheses",
    }
    return names.get(type(node).__name__, f"{type(node).__name__} expressions")


def _number(text: str) -> ir.Constant:
    try:
        return ir.Constant(compute(text, ()) if not text.isdigit() or len(text) > 18 else int(text))
    except Unsupported:
        raise Unsupported(f"the number {text}") from None


def _column(node: exp.Column, scope: Scope) -> ir.Expr:
    if isinstance(node.this, exp.Star):
        raise Unsupported("* in an expression")
    if node.args.get("db") or node.args.get("catalog"):
        raise Unsupported("a name with a database before it")
    if not isinstance(node.this, exp.Identifier):
        raise Unsupported(f"{type(node.this).__name__} as a name")
    return scope.resolve(node.table or None, node.name, quoted=bool(node.this.quoted))


def _is_null_test(node: exp.Expression) -> bool:
    """x IS NOT NULL, which sqlglot gives as NOT (x IS NULL); with parentheses they differ."""
    return isinstance(node, exp.Is)


def _refuse_rows(node: exp.Expression) -> None:
    if isinstance(node.this, exp.Tuple) or isinstance(node.expression, exp.Tuple):
        raise Unsupported("a row value")


def _refuse_symmetric(node: exp.Between) -> None:
    if node.args.get("symmetric"):
        raise Unsupported("BETWEEN SYMMETRIC")


def _in(node: exp.In, read: Callable, query: ReadQuery) -> ir.Expr:
    if node.args.get("field") is not None or node.args.get("unnest") is not None:
        raise Unsupported("IN with a table's name")
    inner = node.args.get("query")
    if inner is None:
        if isinstance(node.this, exp.Tuple):
            raise Unsupported("a row value")
        items = node.expressions
        if len(items) == 1 and isinstance(items[0], exp.Subquery | exp.Select):
            raise Unsupported("IN with a parenthesised subquery in its list")
        found_items = tuple(read(item) for item in items)
        if any(map(has_collate, found_items)):
            raise Unsupported("COLLATE in an IN list")
        return ir.InList(read(node.this), found_items)
    left = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
    found = query(inner)
    if gives_collation(found):
        raise Unsupported("IN with a subquery whose column has a collation")
    if len(left) != len(found.outputs):
        raise Unsupported("IN with a different number of columns")
    return ir.InQuery(tuple(read(operand) for operand in left), found)


def _scalar(query: ir.Query) -> ir.Scalar:
    if len(query.outputs) != 1:
        raise Unsupported("a subquery of several columns as a value")
    if query.order and query.limit is None:
        query = replace(query, limit=ir.Constant(1), implicit_limit=True)
    return ir.Scalar(query)


def _cast(node: exp.Cast, read: Callable) -> ir.Expr:
    if any(node.args.get(part) for part in ("format", "action", "default", "safe")):
        raise Unsupported("CAST with options")
    name = node.args["to"].this
    name = getattr(name, "name", name)
    affinity = _CAST_AFFINITIES.get(str(name))
    if affinity is None:
        raise Unsupported(f"CAST AS {name}")
    return ir.Cast(read(node.this), affinity, affinity)


def collation_name(node: exp.Collate) -> str:
    """The collation that COLLATE names."""
    name = node.expression.name.upper()
    if name not in ("BINARY", "NOCASE", "RTRIM"):
        raise Unsupported(f"COLLATE {name}")
    return name


def _like(node: exp.Expression, read: Callable) -> ir.Expr:
    escape = ()
    if isinstance(node, exp.Escape):
        escape, node = (read(node.expression),), node.this
    if not isinstance(node, exp.Like | exp.Glob) or (escape and isinstance(node, exp.Glob)):
        raise Unsupported("ESCAPE without LIKE")
    name = "like" if isinstance(node, exp.Like) else "glob"
    result = ir.Call(name, (read(node.expression), read(node.this), *escape), infix=True)
    return ir.Not(result) if node.args.get("negate") else result


def _call(node: exp.Anonymous, read: Callable, scope: Scope) -> ir.Expr:
    name = fold(node.name)
    args = node.expressions
    if name in _AGGREGATES and (name not in ("min", "max") or len(args) == 1):
        return _aggregate(name, args, read, scope)
    if name not in functions.KNOWN:
        raise Unsupported(f"the function {name}()")
    read_args = tuple(read(arg) for arg in args)
    least = {"coalesce": 2, "min": 2, "max": 2}.get(name)
    wanted = {"ifnull": 2, "nullif": 2, "iif": 3}.get(name, len(args))
    if len(args) != wanted or (least and len(args) < least):
        raise Unsupported(f"{name}() with {len(args)} arguments")
    return ir.Call(name, read_args)


def _aggregate(name: str, args: list, read: Callable, scope: Scope) -> ir.Aggregate:
    distinct = False
    if name == "count" and (not args or isinstance(args[0], exp.Star)):
        return ir.Aggregate("count", None)
    if len(args) == 1 and isinstance(args[0], exp.Distinct):
        distinct, args = True, args[0].expressions
    if len(args) != 1:
        raise Unsupported(f"{name}() with {len(args)} arguments")
    operand = read(args[0])
    if has_aggregate(operand):
        raise Unsupported("an aggregate of an aggregate")
    own = {seen.source.id for seen in scope.visible}
    read_columns: list[ir.Column] = list(columns(operand))
    if read_columns and not any(column.source in own for column in read_columns):
        raise Unsupported("an aggregate over a column of the query around")
    return ir.Aggregate(name, operand, distinct)
