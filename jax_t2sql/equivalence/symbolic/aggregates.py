"""Aggregates over rows that may or may not be there.

Sums of INTEGERs are exact; databases on which one overflows make the query fail and are left
aside. A sum of which some part is REAL is taken as a function of the exact sum and the number of
its parts: the order in which SQLite adds, which decides the last bits, is looked into only where
the context asks for it.
"""

from fractions import Fraction

from jax_t2sql.equivalence.symbolic.arithmetic import operate
from jax_t2sql.equivalence.symbolic.context import Context
from jax_t2sql.equivalence.symbolic.errors import Unsupported
from jax_t2sql.equivalence.symbolic.opaque import FRACTIONAL, SUMMAND, apply, collated
from jax_t2sql.equivalence.symbolic.terms import Term, Terms
from jax_t2sql.equivalence.symbolic.values import (
    NUMBERS,
    Val,
    choose,
    identical,
    is_number,
    is_small,
    is_text,
    same,
)


def aggregate(
    ctx: Context,
    name: str,
    members: list[Term],
    values: list[Val] | None,
    *,
    distinct: bool,
    collation: str,
) -> Val:
    """The value of an aggregate.

    Args:
      ctx: the evaluation.
      name: in lower case.
      members: for each possible row whether it is counted in.
      values: the operand on each, None for count(*).
      distinct: whether equal values count once.
      collation: by which they are compared.
    """
    t = ctx.t
    if values is None:
        return Val(t.false, t.count(members), t.false)
    counted = [t.and_(m, t.not_(v.null)) for m, v in zip(members, values, strict=True)]
    if name in ("min", "max"):
        return _extreme(ctx, name, counted, values, collation)
    if distinct:
        counted = _first_of_each(ctx, counted, values, collation, kept=name != "count")
    number = t.count(counted)
    if name == "count":
        return Val(t.false, number, t.false)
    return _total(ctx, name, counted, values, number)


def _first_of_each(
    ctx: Context, counted: list[Term], values: list[Val], collation: str, *, kept: bool
) -> list[Term]:
    """Which values are the first of their likes; `kept` where it matters which of these."""
    t = ctx.t
    folded = [collated(t, v, collation) for v in values]
    result = []
    for i, here in enumerate(counted):
        earlier = []
        for j in range(i if here is not t.false else 0):
            equal = t.and_(counted[j], same(t, folded[j], folded[i]))
            if kept:
                ctx.doubt(here, equal, differ(t, values[i], values[j], collation))
            earlier.append(equal)
        result.append(t.and_(here, t.not_(t.or_(*earlier))))
    return result


def _total(ctx: Context, name: str, counted: list[Term], values: list[Val], number: Term) -> Val:
    t = ctx.t
    numbers = [_summand(ctx, v) for v in values]
    parts = [t.ite(c, v.key, t.zero) for c, v in zip(counted, numbers, strict=True)]
    exact = t.add(*parts)
    inexact = t.or_(*(t.and_(c, v.real) for c, v in zip(counted, numbers, strict=True)))
    none = t.eq(number, t.zero)
    if ctx.exact_sums:  # of two REALs it does not matter which comes first
        ctx.doubt(inexact, t.lt(t.number(2), number))
    arguments = [Val(t.false, exact, inexact), Val(t.false, number, t.false)]
    rounded = apply(t, "CAST(? AS REAL)+0*?", arguments, bounds=NUMBERS)
    ctx.wishes.append(t.and_(t.not_(rounded.null), t.eq(rounded.key, exact)))
    lost = t.and_(inexact, rounded.null)  # infinities of both signs
    if name == "sum":
        # A sum of INTEGERs that is none makes the query fail.
        key = t.narrowed(t.ite(inexact, rounded.key, exact), NUMBERS)
        return Val(t.or_(none, lost), key, inexact)
    # The sum in floating point is exact as long as it is of few small INTEGERs.
    large = t.or_(
        *(t.and_(c, t.not_(is_small(t, v.key))) for c, v in zip(counted, numbers, strict=True))
    )
    key = t.narrowed(t.ite(t.or_(inexact, large), rounded.key, exact), NUMBERS)
    total = Val(lost, key, t.true)
    if name == "total":
        return total
    if name != "avg":
        raise Unsupported(f"the aggregate {name}()")
    mean = operate(t, "/", total, Val(t.false, number, t.false))
    _wish_mean(ctx, mean, exact, number)
    return Val(t.or_(none, mean.null), mean.key, t.true)


def _wish_mean(ctx: Context, mean: Val, exact: Term, number: Term) -> None:
    t = ctx.t
    for n in range(1, int(number.bounds[1]) + 1):
        is_mean = t.and_(t.not_(mean.null), t.eq(mean.key, t.linear([(Fraction(1, n), exact)])))
        ctx.wishes.append(t.implies(t.eq(number, t.number(n)), is_mean))


def _summand(ctx: Context, v: Val) -> Val:
    """What sum() adds for a value: a text counts as the number that it spells or begins with."""
    t = ctx.t
    number = is_number(t, v)
    if number is t.true or v.null is t.true:
        return v
    spelt = apply(t, SUMMAND, [v], bounds=NUMBERS, null=v.null)
    ctx.smallness.append(t.or_(v.null, is_small(t, spelt.key)))
    real = t.or_(t.not_(is_text(t, v)), spelt.real)  # a blob counts as REAL
    result = choose(t, number, v, Val(v.null, spelt.key, real))
    return Val(result.null, t.narrowed(result.key, NUMBERS), result.real)


def _extreme(
    ctx: Context, name: str, counted: list[Term], values: list[Val], collation: str
) -> Val:
    t = ctx.t
    folded = [collated(t, v, collation) for v in values]
    result = Val(t.true, t.zero, t.false)
    best = result
    for here, v, key in zip(counted, values, folded, strict=True):
        if here is t.false:
            continue
        before, after = (best.key, key.key) if name == "max" else (key.key, best.key)
        better = t.and_(here, t.or_(best.null, t.lt(before, after)))
        # Which of 1 and 1.0 is kept depends on the order of the rows.
        tie = t.and_(here, t.not_(best.null), t.eq(before, after))
        ctx.doubt(tie, differ(t, v, result, collation))
        result = choose(t, better, v, result)
        best = choose(t, better, key, best)
    return result


def differ(t: Terms, a: Val, b: Val, collation: str) -> Term:
    """Whether two values that compare equal are yet told apart, by kind or by spelling."""
    if collation == "BINARY" and (
        a.real is b.real and a.real.is_const or _follows(a) and _follows(b)
    ):
        return t.false
    return t.not_(identical(t, a, b))


def _follows(v: Val) -> bool:
    """Whether the kind is a function of the key, as it is in columns of INTEGER affinity."""
    return v.real.op == "uf" and v.real.args[0] == FRACTIONAL and v.real.args[1] is v.key
