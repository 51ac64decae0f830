"""SQLite's values as three terms: is it NULL, where does it stand in SQLite's order, is it REAL.

SQLite orders all values in one line: NULL, numbers (INTEGER and REAL by value), texts (by their
bytes), blobs (by theirs), https://www.sqlite.org/datatype3.html#comparison_expressions. So one
rational number, the key, stands for a value that is not NULL, and comparing keys compares values:
a number up to 2^63 is its own key, larger REALs are squeezed into what is left below 2^64, texts
lie from 2^65 and blobs from 2^66, each as the fraction that its bytes spell.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from jax_t2sql.equivalence.symbolic.terms import Bounds, Number, Term, Terms

SqlValue = None | int | float | str | bytes

LARGEST = 2**63  # integers and exact REALs do not exceed it in size
NUMBERS: Bounds = (-(2**64), 2**64)
LARGE = 2**40  # a thousand INTEGERs up to this, and their sums, are exact as REALs
TEXT_LOW, TEXT_HIGH = 2**65, 2**65 + 1
BLOB_LOW, BLOB_HIGH = 2**66, 2**66 + 1
TEXTS: Bounds = (TEXT_LOW, TEXT_HIGH)
INTEGERS: Bounds = (-LARGEST, LARGEST - 1)
ANYTHING: Bounds = (NUMBERS[0], BLOB_HIGH)

_DIGITS = 257  # one more than there are bytes: the end of a text sorts before every byte


@dataclass(frozen=True, slots=True)
class Val:
    """A value, possibly unknown.

    Attributes:
      null: whether it is NULL; the other two then mean nothing.
      key: its place in the order.
      real: whether a number is stored as REAL. False for texts and blobs.
    """

    null: Term
    key: Term
    real: Term


def key_of(value: int | float | str | bytes) -> Number:
    """The key of a value that is not NULL."""
    if isinstance(value, str):
        return TEXT_LOW + _fraction(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes):
        return BLOB_LOW + _fraction(value)
    if isinstance(value, int):
        return value
    if abs(value) <= LARGEST:
        return Fraction(value)
    share = Fraction(0) if math.isinf(value) else Fraction(LARGEST) / Fraction(abs(value))
    squeezed = LARGEST + (LARGEST // 2) * (1 - share)
    return squeezed if value > 0 else -squeezed


def _fraction(data: bytes) -> Fraction:
    digits = 0
    for byte in data:
        digits = digits * _DIGITS + byte + 1
    return Fraction(digits, _DIGITS ** len(data))


def value_of(null: bool, key: Number, real: bool) -> SqlValue:
    """The value of a key; the inverse of `key_of`."""
    if null:
        return None
    if key >= BLOB_LOW:
        return _bytes(Fraction(key) - BLOB_LOW)
    if key >= TEXT_LOW:
        return _bytes(Fraction(key) - TEXT_LOW).decode("utf-8", "surrogatepass")
    if not real and Fraction(key).denominator == 1:
        return int(key)
    size = abs(Fraction(key))
    if size <= LARGEST:
        return float(key)
    share = 1 - (size - LARGEST) / (LARGEST // 2)
    number = float(LARGEST / share) if share else math.inf
    return number if key > 0 else -number


def _bytes(fraction: Fraction) -> bytes:
    data = bytearray()
    while fraction:
        fraction *= _DIGITS
        digit = int(fraction)
        fraction -= digit
        data.append(max(digit - 1, 0))
    return bytes(data)


def constant(t: Terms, value: SqlValue) -> Val:
    """A value that is known."""
    if value is None or value != value:
        return Val(t.true, t.zero, t.false)
    return Val(t.false, t.number(key_of(value)), t.truth(isinstance(value, float)))


def is_constant(v: Val) -> bool:
    return v.null.is_const and (v.null.value or (v.key.is_const and v.real.is_const))


def constant_value(v: Val) -> SqlValue:
    """The value of a constant."""
    if v.null.value:
        return None
    return value_of(False, v.key.value, v.real.value)


def choose(t: Terms, test: Term, a: Val, b: Val) -> Val:
    """The value `a` where the test holds, else `b`."""
    # What NULL's key and kind are is free, so that they may be those of the other branch.
    if a.null is t.true:
        a = Val(a.null, b.key, b.real)
    if b.null is t.true:
        b = Val(b.null, a.key, a.real)
    return Val(t.ite(test, a.null, b.null), t.ite(test, a.key, b.key), t.ite(test, a.real, b.real))


def is_number(t: Terms, v: Val) -> Term:
    """Whether a value that is not NULL is INTEGER or REAL."""
    return t.lt(v.key, t.number(TEXT_LOW))


def is_text(t: Terms, v: Val) -> Term:
    """Whether a value that is not NULL is TEXT."""
    return t.and_(t.le(t.number(TEXT_LOW), v.key), t.lt(v.key, t.number(BLOB_LOW)))


def same(t: Terms, a: Val, b: Val) -> Term:
    """SQL's IS: equal, or both NULL."""
    return t.or_(
        t.and_(a.null, b.null),
        t.and_(t.not_(a.null), t.not_(b.null), t.eq(a.key, b.key)),
    )


def identical(t: Terms, a: Val, b: Val) -> Term:
    """The same to the last trait: 1 and 1.0 are equal but not identical."""
    return t.or_(
        t.and_(a.null, b.null),
        t.and_(t.not_(a.null), t.not_(b.null), t.eq(a.key, b.key), t.eq(a.real, b.real)),
    )


def canonical(t: Terms, v: Val) -> tuple[Term, Term, Term]:
    """The three terms with NULL's meaningless parts fixed: fit to be a function's arguments."""
    if v.null.is_const:
        if v.null.value:
            return t.true, t.zero, t.false
        return v.null, v.key, v.real
    return v.null, t.ite(v.null, t.zero, v.key), t.and_(t.not_(v.null), v.real)


def is_small(t: Terms, key: Term) -> Term:
    """Whether a number is not larger than LARGE."""
    return t.and_(t.le(t.number(-LARGE), key), t.le(key, t.number(LARGE)))
