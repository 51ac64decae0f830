"""What is assumed of functions that are left open: where results lie, and when they are NULL."""

import itertools

import pytest

from jax_t2sql.equivalence.symbolic.errors import Unsupported
from jax_t2sql.equivalence.symbolic.functions import _OPAQUE, KNOWN, call
from jax_t2sql.equivalence.symbolic.opaque import compute
from jax_t2sql.equivalence.symbolic.terms import Terms
from jax_t2sql.equivalence.symbolic.values import TEXT_LOW, Val, constant, constant_value, key_of

_VALUES = [
    None, 0, 1, -3, 2**62, -(2**63) + 1, 0.5, -2.5, 1e300, float("inf"), "", "a", "aB c", "-7",
    "1.5x", "2012-02-30", "2012-12-31 10:20:30", "%Y", "é", b"", b"a", b"\xff", b"\x00b",
]  # fmt: skip
_ARITIES = {
    "round": (1, 2), "instr": (2,), "trim": (1, 2), "ltrim": (1, 2), "rtrim": (1, 2),
    "replace": (3,), "substr": (2, 3), "substring": (2, 3), "char": (0, 1, 2), "printf": (1, 2),
    "format": (1, 2), "like": (2,), "glob": (2,), "date": (1, 2), "time": (1,), "datetime": (1,),
    "strftime": (2,), "unixepoch": (1,),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(_OPAQUE))
def test_bounds_and_nulls_are_as_sqlite_has_them(name):
    (low, high), null_iff_argument = _OPAQUE[name]
    computed = 0
    for arity in _ARITIES.get(name, (1,)):
        values = _VALUES if arity < 3 else _VALUES[::2]
        for args in itertools.product(values, repeat=arity):
            try:
                value = compute(f"{name}({','.join('?' * arity)})", args)
            except Unsupported:  # SQLite fails
                continue
            computed += 1
            if null_iff_argument:
                assert (value is None) == (None in args), args
            if value is not None:
                assert low <= key_of(value) <= high, (args, value)
            if low >= TEXT_LOW:
                assert not isinstance(value, float)
    assert computed


def _call(name: str, args: tuple, collation: str = "BINARY"):
    t = Terms()
    return constant_value(call(t, name, [constant(t, arg) for arg in args], collation))


@pytest.mark.parametrize("name", ["coalesce", "ifnull", "nullif", "min", "max"])
def test_exact_functions_give_what_sqlite_gives(name):
    for args in itertools.product(_VALUES, repeat=2):
        value = compute(f"{name}(?, ?)", args)
        ours = _call(name, args)
        assert ours == value and type(ours) is type(value), args


@pytest.mark.parametrize("name", ["like", "glob"])
def test_patterns_and_nulls(name):
    """Unless a blob is among the arguments, the result is NULL just where one of them is."""
    for args in itertools.product(_VALUES, repeat=2):
        if not any(isinstance(arg, bytes) for arg in args):
            assert (compute(f"{name}(?, ?)", args) is None) == (None in args)


def test_of_several_arguments_all_count():
    for args in itertools.product([None, 1, 1.0, "1", b"1"], repeat=3):
        for name in ("min", "max", "coalesce"):
            value = compute(f"{name}(?, ?, ?)", args)
            ours = _call(name, args)
            assert ours == value and type(ours) is type(value), (name, args)


def test_the_clock_and_unknown_functions_are_refused():
    t = Terms()
    unknown = Val(t.false, t.var("x", numeric=True), t.false)
    for name, args in (
        ("date", []),
        ("date", [constant(t, "now")]),
        ("datetime", [unknown, constant(t, "localtime")]),
        ("strftime", [constant(t, "%Y")]),
        ("random", []),
    ):
        with pytest.raises(Unsupported):
            call(t, name, args, "BINARY")
    assert "random" not in KNOWN and call(t, "date", [unknown], "BINARY").key.bounds[0] == TEXT_LOW
