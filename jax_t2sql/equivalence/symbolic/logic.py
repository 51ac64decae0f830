"""Three-valued logic: a condition is true, false, or neither (unknown: NULL)."""

from collections.abc import Iterable
from dataclasses import dataclass

from jax_t2sql.equivalence.symbolic.terms import Term, Terms
from jax_t2sql.equivalence.symbolic.values import Val


@dataclass(frozen=True, slots=True)
class Truth:
    """When a condition is true and when it is false; never both."""

    true: Term
    false: Term


def negation(a: Truth) -> Truth:
    return Truth(a.false, a.true)


def conjunction(t: Terms, parts: Iterable[Truth]) -> Truth:
    parts = list(parts)
    return Truth(t.and_(*(p.true for p in parts)), t.or_(*(p.false for p in parts)))


def disjunction(t: Terms, parts: Iterable[Truth]) -> Truth:
    parts = list(parts)
    return Truth(t.or_(*(p.true for p in parts)), t.and_(*(p.false for p in parts)))


def two_valued(t: Terms, condition: Term) -> Truth:
    """A condition that is never unknown."""
    return Truth(condition, t.not_(condition))


def as_value(t: Terms, a: Truth) -> Val:
    """The 1, 0 or NULL that SQLite shows for a condition."""
    known = t.or_(a.true, a.false)
    return Val(t.not_(known), t.ite(a.true, t.one, t.zero), t.false)
