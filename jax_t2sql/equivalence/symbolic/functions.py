"""Scalar functions: a few exactly, the others as functions of which little is assumed."""

from collections.abc import Sequence

from jax_t2sql.equivalence.symbolic.comparing import compared
from jax_t2sql.equivalence.symbolic.errors import Unsupported
from jax_t2sql.equivalence.symbolic.opaque import apply, collated
from jax_t2sql.equivalence.symbolic.terms import Bounds, Terms
from jax_t2sql.equivalence.symbolic.values import (
    ANYTHING,
    BLOB_LOW,
    INTEGERS,
    NUMBERS,
    TEXTS,
    Val,
    choose,
    constant_value,
    is_constant,
)

# Functions of their arguments alone, that no collation touches: where a result that is not NULL
# lies, and whether it is NULL exactly if an argument is.
_OPAQUE: dict[str, tuple[Bounds, bool]] = {
    "abs": (NUMBERS, True),
    "round": (NUMBERS, True),
    "sign": (INTEGERS, False),
    "length": (INTEGERS, True),
    "unicode": (INTEGERS, False),
    "instr": (INTEGERS, True),
    "lower": (TEXTS, True),
    "upper": (TEXTS, True),
    "trim": (TEXTS, True),
    "ltrim": (TEXTS, True),
    "rtrim": (TEXTS, True),
    "replace": (ANYTHING, False),  # an empty pattern gives the first argument back as it is
    "substr": (ANYTHING, False),
    "substring": (ANYTHING, False),
    "hex": (TEXTS, False),
    "char": (TEXTS, False),
    "typeof": (TEXTS, False),
    "printf": (TEXTS, False),
    "format": (TEXTS, False),
    "like": ((0, 1), False),
    "glob": ((0, 1), False),
    "date": (TEXTS, False),
    "time": (TEXTS, False),
    "datetime": (TEXTS, False),
    "julianday": (NUMBERS, False),
    "strftime": (TEXTS, False),
    "unixepoch": (INTEGERS, False),
}

_SYNONYMS = {"substring": "substr", "format": "printf"}
_EXACT = ("coalesce", "ifnull", "nullif", "min", "max", "iif")
_DATES = ("date", "time", "datetime", "julianday", "strftime", "unixepoch")

KNOWN = frozenset({*_OPAQUE, *_EXACT})


def call(t: Terms, name: str, args: Sequence[Val], collation: str) -> Val:
    """The value of a scalar function.

    Args:
      t: the graph.
      name: in lower case.
      args: its arguments.
      collation: of the first argument that has one.

    Raises:
      Unsupported: a function that is not modelled, or one of the current time.
    """
    if name in ("coalesce", "ifnull"):
        result = args[-1]
        for arg in reversed(args[:-1]):
            result = choose(t, arg.null, result, arg)
        return result
    if name == "nullif":
        a, b = args
        equal = compared(t, "=", *(collated(t, v, collation) for v in args)).true
        return Val(t.or_(a.null, equal), a.key, a.real)
    if name in ("min", "max"):
        return _extreme(t, name, args, collation)
    if name not in _OPAQUE:
        raise Unsupported(f"the function {name}()")
    if name in _DATES:
        _refuse_current_time(name, args)
    bounds, null_iff_argument = _OPAQUE[name]
    sql = f"{_SYNONYMS.get(name, name)}({','.join('?' * len(args))})"
    some_null = t.or_(*(arg.null for arg in args))
    if null_iff_argument:
        return apply(t, sql, args, bounds=bounds, null=some_null)
    result = apply(t, sql, args, bounds=bounds)
    if name in ("like", "glob"):  # a blob is like nothing, even if the other one is NULL
        blob = t.or_(*(t.and_(t.not_(a.null), t.le(t.number(BLOB_LOW), a.key)) for a in args))
        return Val(t.ite(blob, result.null, some_null), result.key, result.real)
    return result


def _extreme(t: Terms, name: str, args: Sequence[Val], collation: str) -> Val:
    """min(a, b…), max(a, b…): NULL if one is; of equals min takes the last, max the first."""
    best = args[0]
    for arg in args[1:]:
        a, b = collated(t, best, collation), collated(t, arg, collation)
        later = t.lt(a.key, b.key) if name == "max" else t.le(b.key, a.key)
        best = choose(t, later, arg, best)
    return Val(t.or_(*(arg.null for arg in args)), best.key, best.real)


def _refuse_current_time(name: str, args: Sequence[Val]) -> None:
    """A cell that holds the text 'now' is not thought of: such a date is nobody's data."""
    words = {str(constant_value(arg)).lower() for arg in args if is_constant(arg)}
    no_moment = len(args) == (1 if name == "strftime" else 0)
    if no_moment or not words.isdisjoint(("now", "localtime", "utc")):
        raise Unsupported(f"{name}() of the current time or time zone")
