"""Arithmetic as SQLite does it: INTEGER exactly while it fits, else REAL; division by 0 is NULL.

INTEGER sums, differences and multiples are exact terms. What is done in floating point, and
products and quotients of two unknowns, are functions of their operands of which nothing else is
assumed.
"""

from jax_t2sql.equivalence.symbolic.opaque import apply
from jax_t2sql.equivalence.symbolic.terms import Term, Terms
from jax_t2sql.equivalence.symbolic.values import (
    INTEGERS,
    NUMBERS,
    TEXTS,
    Val,
    choose,
    constant,
    constant_value,
    is_constant,
    is_number,
    is_text,
)


def _is_integer(t: Terms, v: Val) -> Term:
    return t.and_(is_number(t, v), t.not_(v.real))


def _fits(t: Terms, key: Term) -> Term:
    low, high = INTEGERS
    return t.and_(t.le(t.number(low), key), t.le(key, t.number(high)))


def operate(t: Terms, op: str, a: Val, b: Val) -> Val:
    """The value of `a op b` for a binary operator."""
    some_null = t.or_(a.null, b.null)
    if some_null is t.true:
        return constant(t, None)
    if op == "||":
        return apply(t, "?||?", [a, b], bounds=TEXTS, null=some_null)
    if is_constant(a) and is_constant(b):
        return apply(t, f"?{op}?", [a, b])
    if op in ("+", "-", "*", "/"):
        a, b = _aligned(t, a, b)
    if op in ("*", "/") and _is_real_one(b):
        return Val(some_null, *_real_parts(t, a))
    if op == "*" and _is_real_one(a):
        return Val(some_null, *_real_parts(t, b))
    if op in ("+", "*"):  # both commute, in floating point too
        a, b = _in_order(t, a, b)
    given = apply(t, f"?{op}?", [a, b], bounds=NUMBERS)
    if op in ("%", "&", "|", "<<", ">>"):  # % is NULL for a divisor of 0, too
        null = t.or_(some_null, given.null) if op == "%" else some_null
        return Val(null, given.key, given.real)
    both_integer = t.and_(_is_integer(t, a), _is_integer(t, b))
    some_real = t.or_(*(t.and_(is_number(t, v), v.real) for v in (a, b)))
    null = t.or_(some_null, t.and_(t.not_(both_integer), given.null))
    if op == "/":
        # The one quotient of INTEGERs that does not fit is that of the least one by -1.
        whole = t.and_(both_integer, t.not_(t.eq(b.key, t.number(-1))))
        real = t.or_(some_real, t.and_(t.not_(whole), given.real))
        return Val(t.or_(null, t.eq(b.key, t.zero)), given.key, real)
    opaque = Val(null, given.key, t.or_(some_real, given.real))
    exact = _exact(t, op, a.key, b.key)
    if exact is None:
        return opaque
    fits = t.and_(both_integer, _fits(t, exact))
    return choose(t, fits, Val(some_null, exact, t.false), opaque)


def _in_order(t: Terms, a: Val, b: Val) -> tuple[Val, Val]:
    """The lesser of two operands first, so that the order in which they are written is lost."""
    if a.key.is_const or b.key.is_const:
        return (a, b) if a.key.is_const else (b, a)
    swapped = t.lt(b.key, a.key)
    return choose(t, swapped, b, a), choose(t, swapped, a, b)


def _aligned(t: Terms, a: Val, b: Val) -> tuple[Val, Val]:
    """The operands with an INTEGER beside a REAL made REAL, as SQLite does before it computes."""
    result = []
    for v, other in ((a, b), (b, a)):
        turned = t.and_(is_number(t, other), other.real, _is_integer(t, v))
        result.append(v if turned is t.false else choose(t, turned, to_real(t, v), v))
    return result[0], result[1]


def to_real(t: Terms, v: Val) -> Val:
    """A number as REAL. Every INTEGER up to 2^53 is one."""
    short = t.and_(t.le(t.number(-(2**53)), v.key), t.le(v.key, t.number(2**53)))
    stays = t.or_(v.real, short)
    rounded = apply(t, "CAST(? AS REAL)", [v], bounds=NUMBERS, null=v.null)
    return Val(v.null, t.ite(stays, v.key, rounded.key), t.true)


def _is_real_one(v: Val) -> bool:
    return is_constant(v) and isinstance(constant_value(v), float) and constant_value(v) == 1


def _real_parts(t: Terms, v: Val) -> tuple[Term, Term]:
    """Key and kind of a value taken times 1.0; a text counts as the number that it begins with."""
    spelt = apply(t, "1.0*?", [v], bounds=NUMBERS, null=v.null)
    return t.ite(is_number(t, v), to_real(t, v).key, spelt.key), t.true


def _exact(t: Terms, op: str, a: Term, b: Term) -> Term | None:
    if op == "+":
        return t.add(a, b)
    if op == "-":
        return t.linear([(1, a), (-1, b)])
    if op == "*" and (a.is_const or b.is_const):
        factor, term = (a, b) if a.is_const else (b, a)
        return t.linear([(factor.value, term)])
    return None


def negate(t: Terms, a: Val) -> Val:
    """The value of `-a`."""
    if is_constant(a):
        return apply(t, "-?", [a])
    number = is_number(t, a)
    negated = t.linear([(-1, a.key)])
    # The negative of the least INTEGER does not fit.
    simple = t.and_(number, t.or_(a.real, t.lt(t.number(INTEGERS[0]), a.key)))
    opaque = apply(t, "-?", [a], bounds=NUMBERS, null=a.null)
    return choose(t, simple, Val(a.null, negated, a.real), opaque)


def cast(t: Terms, a: Val, affinity: str) -> Val:
    """The value of CAST(a AS …)."""
    if a.null is t.true:
        return a
    sql = f"CAST(? AS {affinity})"
    if is_constant(a):
        return apply(t, sql, [a])
    if affinity == "TEXT":
        opaque = apply(t, sql, [a], bounds=TEXTS, null=a.null)
        return choose(t, is_text(t, a), a, opaque)
    if affinity == "INTEGER":
        opaque = apply(t, sql, [a], bounds=INTEGERS, null=a.null)
        whole = Val(a.null, opaque.key, t.false)
        return choose(t, _is_integer(t, a), Val(a.null, a.key, t.false), whole)
    if affinity == "REAL":
        opaque = apply(t, sql, [a], bounds=NUMBERS, null=a.null)
        real = to_real(t, a)
        return choose(t, is_number(t, a), real, Val(a.null, opaque.key, t.true))
    return apply(t, sql, [a], null=a.null)
