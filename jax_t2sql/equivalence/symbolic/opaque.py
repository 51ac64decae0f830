"""Functions that are computed where all is known and left uninterpreted where it is not.

A function is named by its SQL, with a `?` for each argument: "substr(?,?)". On constants SQLite
itself computes it. On anything else only this is known: equal arguments (kind included) give equal
results. That leaves a proof sound, as the real function is one of those that it covers; a model may
rest on a function that does not exist, so that models must be replayed.
"""

import functools
import sqlite3
import threading
from collections.abc import Sequence

from jax_t2sql.equivalence.symbolic.errors import Unsupported
from jax_t2sql.equivalence.symbolic.terms import Bounds, Number, Term, Terms
from jax_t2sql.equivalence.symbolic.values import (
    ANYTHING,
    LARGEST,
    SqlValue,
    Val,
    canonical,
    constant,
    constant_value,
    is_constant,
    key_of,
    value_of,
)

NUMERIC_AFFINITY = "numeric affinity"
SUMMAND = "sum(?)"
FRACTIONAL = "fractional"


def apply(
    t: Terms, sql: str, args: Sequence[Val], *, bounds: Bounds = ANYTHING, null: Term | None = None
) -> Val:
    """A function's value.

    Args:
      t: the graph.
      sql: the function.
      args: as many values as `sql` has question marks.
      bounds: where the key of a result that is not NULL lies.
      null: when the result is NULL, if that is known.
    """
    if all(map(is_constant, args)):
        return constant(t, compute(sql, tuple(map(constant_value, args))))
    terms = [part for arg in args for part in canonical(t, arg)]
    if null is None:
        null = t.uf(f"null:{sql}", terms, numeric=False)
    key = t.uf(f"key:{sql}", terms, numeric=True, bounds=bounds)
    kind_is_known = bounds[0] is not None and bounds[0] >= 2**65
    real = t.false if kind_is_known else t.uf(f"real:{sql}", terms, numeric=False)
    return Val(null, key, real)


def collated(t: Terms, v: Val, collation: str) -> Val:
    """A value whose key compares as the collation has it."""
    if collation == "BINARY":
        return v
    if is_constant(v):
        return v if v.null.value else Val(v.null, t.number(_fold(v.key.value, collation)), v.real)
    key = t.uf(f"fold:{collation}", [v.key], numeric=True, bounds=ANYTHING)
    return Val(v.null, key, v.real)


def _fold(key: Number, collation: str) -> Number:
    value = value_of(False, key, False)
    if not isinstance(value, str):
        return key
    if collation == "NOCASE":
        return key_of("".join(c.lower() if c.isascii() else c for c in value))
    return key_of(value.rstrip(" "))


def fractional(t: Terms, key: Term) -> Term:
    """Whether a number is none that an INTEGER can hold."""
    if key.is_const:
        return t.truth(_is_fractional(key.value))
    return t.uf(FRACTIONAL, [key], numeric=False)


def _is_fractional(key: Number) -> bool:
    return key < 2**65 and (key != int(key) or not -LARGEST < key < LARGEST)


def interpret(name: str, args: Sequence[Number | bool]) -> Number | bool:
    """What an uninterpreted term stands for, its arguments known."""
    if name == FRACTIONAL:
        return _is_fractional(args[0])
    part, _, sql = name.partition(":")
    if part == "fold":
        return _fold(args[0], sql)
    triples = zip(args[::3], args[1::3], args[2::3], strict=True)
    value = compute(sql, tuple(value_of(*triple) for triple in triples))
    if part == "null":
        return value is None
    if part == "real":
        return isinstance(value, float)
    return 0 if value is None else key_of(value)


@functools.lru_cache(maxsize=50_000)
def _computed(sql: str, args: tuple[tuple[type, SqlValue], ...]) -> SqlValue:
    values = [value for _, value in args]
    try:
        if sql == NUMERIC_AFFINITY:
            _connection().execute("UPDATE cell SET x = ?", values)
            return _connection().execute("SELECT x FROM cell").fetchone()[0]
        return _connection().execute(f"SELECT {sql}", values).fetchone()[0]
    except (sqlite3.Error, OverflowError) as error:
        raise Unsupported(f"{sql} of {values} fails: {error}") from None


def compute(sql: str, args: tuple[SqlValue, ...]) -> SqlValue:
    """The value that SQLite gives.

    Raises:
      Unsupported: SQLite fails.
    """
    return _computed(sql, tuple((type(value), value) for value in args))


_local = threading.local()


def _connection() -> sqlite3.Connection:
    if not hasattr(_local, "connection"):
        _local.connection = sqlite3.connect(":memory:", isolation_level=None)
        _local.connection.execute("CREATE TABLE cell (x NUMERIC)")
        _local.connection.execute("INSERT INTO cell VALUES (NULL)")
    return _local.connection
