"""Comparisons as SQLite makes them: affinity first, then the order of values.

https://www.sqlite.org/datatype3.html#type_conversions_prior_to_comparison, and
`sqlite3CompareAffinity` in SQLite's expr.c where the page is silent: of two columns, one of TEXT
and one without a type, neither is converted.
"""

from jax_t2sql.equivalence.symbolic.errors import Unsupported
from jax_t2sql.equivalence.symbolic.ir import Cast, Collate, Column, Expr, Scalar
from jax_t2sql.equivalence.symbolic.logic import Truth
from jax_t2sql.equivalence.symbolic.opaque import NUMERIC_AFFINITY, apply, collated
from jax_t2sql.equivalence.symbolic.terms import Term, Terms
from jax_t2sql.equivalence.symbolic.values import (
    TEXTS,
    Val,
    choose,
    is_number,
    is_text,
    same,
)
from jax_t2sql.equivalence.symbolic.walking import has_collate, parts

NUMERIC = ("INTEGER", "REAL", "NUMERIC")
MIXED = "MIXED"
"""The affinity of a result column to which the parts of a set operation give different ones."""


def affinity_of(expr: Expr) -> str | None:
    """The affinity that an expression brings to a comparison, None for none.

    Raises:
      Unsupported: it is a column of a set operation whose parts differ in affinity.
    """
    match expr:
        case Column() | Cast():
            affinity = expr.affinity
        case Collate():
            affinity = affinity_of(expr.operand)
        case Scalar():
            affinity = expr.query.outputs[0].affinity
        case _:
            affinity = None
    return settled(affinity)


def settled(affinity: str | None) -> str | None:
    """The affinity, refused where it is MIXED."""
    if affinity == MIXED:
        raise Unsupported("comparison with a column to which UNION gives several affinities")
    return affinity


def collation_of(expr: Expr) -> tuple[str | None, bool]:
    """The collation that an expression brings to a comparison, and whether COLLATE says so.

    A COLLATE deep inside an expression counts for all of it; of several the first does.
    """
    match expr:
        case Collate():
            return expr.collation, True
        case Column():
            return expr.collation, False
        case Cast():
            return collation_of(expr.operand)
    inside = next((part for part in parts(expr) if has_collate(part)), None)
    return (None, False) if inside is None else collation_of(inside)


def collation_between(left: Expr, right: Expr) -> str:
    """The collation by which two expressions are compared."""
    (a, a_explicit), (b, b_explicit) = collation_of(left), collation_of(right)
    if b_explicit and not a_explicit:
        return b or "BINARY"
    return a or b or "BINARY"


def converted(
    t: Terms, a: Val, a_affinity: str | None, b: Val, b_affinity: str | None
) -> tuple[Val, Val]:
    """Two values after the conversions that a comparison makes."""
    if a_affinity in NUMERIC:
        if b_affinity not in NUMERIC:
            b = to_numeric(t, b)
    elif b_affinity in NUMERIC:
        a = to_numeric(t, a)
    elif a_affinity == "TEXT" and b_affinity is None:
        b = to_text(t, b)
    elif b_affinity == "TEXT" and a_affinity is None:
        a = to_text(t, a)
    return a, b


def to_numeric(t: Terms, v: Val) -> Val:
    """A value under NUMERIC affinity: a text that spells a number becomes one."""
    text = is_text(t, v)
    if text is t.false or v.null is t.true:
        return v
    return choose(t, text, _known_null(v, apply(t, NUMERIC_AFFINITY, [v], null=v.null)), v)


def to_text(t: Terms, v: Val) -> Val:
    """A value under TEXT affinity: a number becomes the text that spells it."""
    number = is_number(t, v)
    if number is t.false or v.null is t.true:
        return v
    return choose(t, number, apply(t, "CAST(? AS TEXT)", [v], bounds=TEXTS, null=v.null), v)


def _known_null(v: Val, converted_value: Val) -> Val:
    return Val(v.null, converted_value.key, converted_value.real)


def compared(t: Terms, op: str, a: Val, b: Val) -> Truth:
    """A comparison of values that are converted and collated already."""
    if op in ("IS", "IS NOT"):
        equal = same(t, a, b)
        different = t.not_(equal)
        return Truth(equal, different) if op == "IS" else Truth(different, equal)
    known = t.and_(t.not_(a.null), t.not_(b.null))
    holds = _holds(t, op, a.key, b.key)
    return Truth(t.and_(known, holds), t.and_(known, t.not_(holds)))


def _holds(t: Terms, op: str, a: Term, b: Term) -> Term:
    match op:
        case "=":
            return t.eq(a, b)
        case "<>":
            return t.not_(t.eq(a, b))
        case "<":
            return t.lt(a, b)
        case "<=":
            return t.le(a, b)
        case ">":
            return t.lt(b, a)
        case ">=":
            return t.le(b, a)
    raise Unsupported(f"the operator {op}")


def compare(
    t: Terms,
    op: str,
    a: Val,
    a_affinity: str | None,
    b: Val,
    b_affinity: str | None,
    collation: str = "BINARY",
) -> Truth:
    """A comparison as SQLite makes it."""
    a, b = converted(t, a, a_affinity, b, b_affinity)
    return compared(t, op, collated(t, a, collation), collated(t, b, collation))
