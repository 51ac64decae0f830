"""The value of an expression on given rows."""

from jax_t2sql.equivalence.symbolic import aggregates, ir
from jax_t2sql.equivalence.symbolic.arithmetic import cast, negate, operate
from jax_t2sql.equivalence.symbolic.comparing import (
    affinity_of,
    collation_between,
    collation_of,
    compare,
    settled,
)
from jax_t2sql.equivalence.symbolic.context import Context, Env, Row
from jax_t2sql.equivalence.symbolic.errors import Unsupported
from jax_t2sql.equivalence.symbolic.functions import call
from jax_t2sql.equivalence.symbolic.logic import (
    Truth,
    as_value,
    conjunction,
    disjunction,
    negation,
    two_valued,
)
from jax_t2sql.equivalence.symbolic.opaque import apply
from jax_t2sql.equivalence.symbolic.values import (
    NUMBERS,
    Val,
    choose,
    constant,
    identical,
    is_number,
)

_CONDITIONS = (
    ir.Compare,
    ir.Connect,
    ir.Not,
    ir.IsNull,
    ir.Between,
    ir.InList,
    ir.InQuery,
    ir.Exists,
)


def value(ctx: Context, expr: ir.Expr, env: Env) -> Val:
    """The value of an expression.

    Raises:
      Unsupported: it holds something that is not modelled.
    """
    t = ctx.t
    match expr:
        case ir.Constant():
            return constant(t, expr.value)
        case ir.Column():
            return env.cells[expr.source][expr.index]
        case ir.Arithmetic():
            return operate(t, expr.op, value(ctx, expr.left, env), value(ctx, expr.right, env))
        case ir.Negate():
            return negate(t, value(ctx, expr.operand, env))
        case ir.Cast():
            return cast(t, value(ctx, expr.operand, env), expr.affinity)
        case ir.Collate():
            return value(ctx, expr.operand, env)
        case ir.Case():
            return _case(ctx, expr, env)
        case ir.Call():
            collation = next((c for c, _ in map(collation_of, expr.args) if c), "BINARY")
            if expr.name == "iif":
                test, yes, no = expr.args
                return _case(ctx, ir.Case(None, ((test, yes),), no), env)
            args = [value(ctx, arg, env) for arg in expr.args]
            return call(t, expr.name, args, collation)
        case ir.Aggregate():
            return _aggregate(ctx, expr, env)
        case ir.Scalar():
            return _scalar(ctx, expr, env)
    if isinstance(expr, _CONDITIONS):
        return as_value(t, truth(ctx, expr, env))
    raise Unsupported(f"{type(expr).__name__} expressions")


def truth(ctx: Context, expr: ir.Expr, env: Env) -> Truth:
    """When an expression, taken as a condition, is true and when it is false."""
    t = ctx.t
    match expr:
        case ir.Connect():
            sides = (truth(ctx, expr.left, env), truth(ctx, expr.right, env))
            return conjunction(t, sides) if expr.op == "AND" else disjunction(t, sides)
        case ir.Not():
            return negation(truth(ctx, expr.operand, env))
        case ir.IsNull():
            null = two_valued(t, value(ctx, expr.operand, env).null)
            return negation(null) if expr.negated else null
        case ir.Compare():
            a, b = value(ctx, expr.left, env), value(ctx, expr.right, env)
            return _compare(ctx, expr.op, expr.left, a, expr.right, b)
        case ir.Between():
            operand = value(ctx, expr.operand, env)
            low, high = value(ctx, expr.low, env), value(ctx, expr.high, env)
            least = _compare(ctx, ">=", expr.operand, operand, expr.low, low)
            most = _compare(ctx, "<=", expr.operand, operand, expr.high, high)
            return conjunction(t, (least, most))
        case ir.InList():
            return _in_list(ctx, expr, env)
        case ir.InQuery():
            return _in_query(ctx, expr, env)
        case ir.Exists():
            rows = _rows(ctx, expr.query, env)
            return two_valued(t, t.or_(*(row.present for row in rows)))
    return _as_condition(ctx, value(ctx, expr, env))


def _as_condition(ctx: Context, v: Val) -> Truth:
    """A value as a condition: numbers are true unless 0, texts by the number they begin with."""
    t = ctx.t
    known = t.not_(v.null)
    number = is_number(t, v)
    nonzero = t.not_(t.eq(v.key, t.zero))
    if number is not t.true:
        leading = apply(t, "CAST(? AS REAL)", [v], bounds=NUMBERS, null=v.null)
        nonzero = t.ite(number, nonzero, t.not_(t.eq(leading.key, t.zero)))
    return Truth(t.and_(known, nonzero), t.and_(known, t.not_(nonzero)))


def _compare(ctx: Context, op: str, left: ir.Expr, a: Val, right: ir.Expr, b: Val) -> Truth:
    collation = collation_between(left, right)
    return compare(ctx.t, op, a, affinity_of(left), b, affinity_of(right), collation)


def _case(ctx: Context, expr: ir.Case, env: Env) -> Val:
    t = ctx.t
    result = constant(t, None) if expr.otherwise is None else value(ctx, expr.otherwise, env)
    base = None if expr.base is None else value(ctx, expr.base, env)
    for test, then in reversed(expr.branches):
        if base is None:
            holds = truth(ctx, test, env)
        else:
            holds = _compare(ctx, "=", expr.base, base, test, value(ctx, test, env))
        result = choose(t, holds.true, value(ctx, then, env), result)
    return result


def _aggregate(ctx: Context, expr: ir.Aggregate, env: Env) -> Val:
    if env.group is None:
        raise Unsupported(f"{expr.name}() where no rows are grouped")
    t = ctx.t
    collation = "BINARY"
    members, values = [], []
    if expr.operand is not None:
        collation = collation_of(expr.operand)[0] or "BINARY"
    for member, inner in env.group.members:
        if expr.only is not None:
            member = t.and_(member, truth(ctx, expr.only, inner).true)
        members.append(member)
        if expr.operand is not None:
            values.append(value(ctx, expr.operand, inner))
    return aggregates.aggregate(
        ctx, expr.name, members, values if expr.operand is not None else None,
        distinct=expr.distinct, collation=collation,
    )  # fmt: skip


def _rows(ctx: Context, query, env: Env) -> list[Row]:
    return ctx.rows_of(ctx, query, Env(env.cells, env.here))


def _scalar(ctx: Context, expr: ir.Scalar, env: Env) -> Val:
    """The first row's value, NULL if there is none. Which row comes first must not matter."""
    t = ctx.t
    rows = [row for row in _rows(ctx, expr.query, env) if row.present is not t.false]
    result = constant(t, None)
    for i in range(len(rows) - 1, -1, -1):
        cell = rows[i].cells[0]
        for other in rows[i + 1 :]:
            differ = t.not_(identical(t, cell, other.cells[0]))
            ctx.doubt(env.here, rows[i].present, other.present, differ)
        result = choose(t, rows[i].present, cell, result)
    return result


def _in_list(ctx: Context, expr: ir.InList, env: Env) -> Truth:
    """The operand's affinity converts the items; theirs is ignored."""
    t = ctx.t
    operand, affinity = value(ctx, expr.operand, env), affinity_of(expr.operand)
    collation = collation_of(expr.operand)[0] or "BINARY"
    items = [value(ctx, item, env) for item in expr.items]
    return disjunction(
        t, (compare(t, "=", operand, affinity, item, None, collation) for item in items)
    )


def _in_query(ctx: Context, expr: ir.InQuery, env: Env) -> Truth:
    t = ctx.t
    operands = [(value(ctx, e, env), affinity_of(e), collation_of(e)[0]) for e in expr.operands]
    found, possible = [], []
    for row in _rows(ctx, expr.query, env):
        equal = conjunction(t, [
            compare(t, "=", v, affinity, cell, settled(output.affinity), collation or "BINARY")
            for (v, affinity, collation), cell, output in zip(
                operands, row.cells, expr.query.outputs, strict=True
            )
        ])  # fmt: skip
        found.append(t.and_(row.present, equal.true))
        possible.append(t.and_(row.present, t.not_(equal.false)))
    return Truth(t.or_(*found), t.not_(t.or_(*possible)))
