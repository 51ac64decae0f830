"""When two results are one: every rule, and the public graders' faults that it must not have."""

import itertools
import math
import random
import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_t2sql.errors import UserError
from jax_t2sql.sql import Mode, distinct_rows, parse_mode, results_equal
from jax_t2sql.sql.closeness import rows_close

MODES = ["set", "multiset", "list", "subset,>=,1", "bird"]
TYPED = ["set", "multiset", "list"]
CELLS = st.one_of(
    st.none(),
    st.integers(-2, 2),
    st.floats(allow_nan=False),
    st.sampled_from(["", "a", "A", "1", "None"]),
    st.binary(max_size=1),
)


def tables(cells=CELLS, max_rows=5, max_width=3):
    return st.integers(1, max_width).flatmap(
        lambda w: st.lists(st.tuples(*[cells] * w), max_size=max_rows)
    )


# ---- modes


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (None, Mode("set")),
        ("", Mode("set")),
        ("set", Mode("set")),
        (" multiset", Mode("multiset")),  # one row of the verified data has this blank
        ("List\n", Mode("list")),
        ("bird", Mode("bird")),
        ("subset", Mode("subset", at_least=True, count=1)),  # two rows have no count
        ("subset,=,5", Mode("subset", count=5)),
        (" subset , >= , 10 ", Mode("subset", at_least=True, count=10)),
    ],
)
def test_parse_mode(text, mode):
    assert parse_mode(text) == mode
    assert parse_mode(str(mode)) == mode


@pytest.mark.parametrize(
    "text",
    ["bag", "subset,", "subset,=", "subset,5", "subset,<,3", "subset,=,0", "subset,=,-1",
     "subset,=,x", "subset,=,1,2", "set,=,3", "list,", "subset,=,3.0", 3]
)  # fmt: skip
def test_malformed_modes_name_themselves(text):
    with pytest.raises(UserError, match="use set, multiset"):
        parse_mode(text)
    with pytest.raises(UserError):
        results_equal([(1,)], [(1,)], text)


# ---- what each mode counts


@pytest.mark.parametrize(
    ("pred", "holds"),
    [
        ([(1,), (2,)], {"set", "multiset", "list", "bird"}),
        ([(2,), (1,)], {"set", "multiset", "bird"}),
        ([(2,), (1,), (1,)], {"set", "bird"}),
        ([(1,)], set()),
        ([(1,), (2,), (3,)], set()),
        ([], set()),
    ],
)
def test_order_and_duplicates(pred, holds):
    gold = [(1,), (2,)]
    assert {mode for mode in (*TYPED, "bird") if results_equal(gold, pred, mode)} == holds


@pytest.mark.parametrize(
    ("pred", "mode", "holds"),
    [
        ([(1,), (3,)], "subset,=,2", True),
        ([(3,), (1,), (3,)], "subset,=,2", True),  # duplicates are dropped before counting
        ([(1,)], "subset,=,2", False),
        ([(1,), (2,), (3,)], "subset,=,2", False),
        ([(1,), (2,), (3,)], "subset,>=,2", True),
        ([(1,), (9,)], "subset,=,2", False),
        ([(1,), (2,), (3,), (9,)], "subset,>=,2", False),
        ([], "subset,>=,1", False),
        ([(1, 2)], "subset,>=,1", False),
        ([(1,), (2,), (3,)], "subset,=,4", False),
    ],
)
def test_subset(pred, mode, holds):
    assert results_equal([(1,), (2,), (3,), (3,)], pred, mode) is holds


def test_empty_results():
    for mode in (*TYPED, "bird"):
        assert results_equal([], [], mode)
        assert not results_equal([(None,)], [], mode)
        assert not results_equal([], [(None,)], mode)
    assert not results_equal([], [], "subset,>=,1")
    assert not results_equal([], [(1,)], "subset,>=,1")


@given(tables(), tables())
def test_bird_is_the_public_rule_to_the_bit(gold, pred):
    assert results_equal(gold, pred, "bird") == (set(map(tuple, gold)) == set(map(tuple, pred)))


def test_bird_has_no_tolerance():
    assert not results_equal([(0.1 + 0.2,)], [(0.3,)], "bird")
    assert results_equal([(1,)], [(1.0,)], "bird")


# ---- values


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, 1.0),
        (0, -0.0),
        (None, None),
        (0.1 + 0.2, 0.3),
        (300, 300.00000000000006),
        (math.inf, math.inf),
        (math.nan, math.nan),
        (2**53 + 1, float(2**53)),  # one of them is REAL
        (b"\xff", b"\xff"),
        ("M\udcfcller", "M\udcfcller"),
    ],
)
@pytest.mark.parametrize("mode", [*TYPED, "subset,=,1"])
def test_equal_values(a, b, mode):
    assert results_equal([(a, "k")], [(b, "k")], mode)
    assert results_equal([(b, "k")], [(a, "k")], mode, column_order="any")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (200, 201),
        (1999, 2010),
        (10**12, 10**12 + 1),
        (58.74, 58.744924),
        (1.0, 1.0 + 1e-8),
        (0.0, 1e-12),
        (1, "1"),
        (None, 0),
        (None, ""),
        (None, "None"),
        ("a", "A"),
        ("a", "a "),
        (b"\xff\x00", "b'\\xff\\x00'"),
        (b"a", "a"),
        (math.nan, None),
        (math.nan, "NaN"),
        (math.inf, -math.inf),
        (math.inf, 1.7e308),
        ("M\udcfcller", "Mller"),
        ("M\udcfcller", "Müller"),
    ],
)
@pytest.mark.parametrize("mode", [*TYPED, "subset,=,1"])
def test_different_values(a, b, mode):
    assert not results_equal([(a, "k")], [(b, "k")], mode)
    assert not results_equal([(b, "k")], [(a, "k")], mode, column_order="any")


def test_tolerance_is_an_option_with_a_bound():
    assert results_equal([(58.74,)], [(58.744924,)], "set", rel_tol=9e-4)
    assert not results_equal([(0.1 + 0.2,)], [(0.3,)], "set", rel_tol=0)
    for rel_tol in (-1e-9, 0.01, math.nan):
        with pytest.raises(UserError, match="rel_tol"):
            results_equal([(1,)], [(1,)], "set", rel_tol=rel_tol)


def test_values_stay_in_their_rows():
    # Sorting each column on its own, or the cells of a row, would call these equal.
    gold = [("x", 1), ("y", 2), ("z", 3)]
    assert not results_equal(gold, [("x", 3), ("y", 1), ("z", 2)], "set", column_order="any")
    assert not results_equal([("a", "b")], [("b", "a")], "set")
    assert not results_equal([(1, 2), (3, 4)], [(2, 1), (4, 3)], "multiset")
    assert not results_equal([(1, 2), (3, 4)], [(2, 1), (3, 4)], "multiset", column_order="any")


def test_all_null_rows_count():
    assert not results_equal([(1,), (None,)], [(1,)], "set")
    assert not results_equal([(None, None)], [(None,)], "set")


def test_rows_mixing_types_do_not_raise():
    rows = [(None, "a"), (1, b"x"), ("t", 2.5), (math.nan, None), (b"", 0)]
    for mode in TYPED:
        assert results_equal(rows, rows, mode, column_order="any")
    assert results_equal(rows, rows[::-1], "multiset")


# ---- tolerance without transitivity

STEP = 6e-10  # neighbours are close, next but one are not
NEAR = st.sampled_from([1.0, 1 + STEP, 1 + 2 * STEP, 1 + 3 * STEP, 1, 2.0])
BIG = st.sampled_from([10**12, 10**12 + 1, 1e12, 1e12 + 1, "x", None])


def paired(gold, pred):
    """The definition of equality as multisets: some one-to-one pairing, each pair close."""
    return len(gold) == len(pred) and any(
        all(rows_close(a, b, 1e-9) for a, b in zip(gold, order, strict=True))
        for order in itertools.permutations(pred)
    )


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_multisets_of_close_numbers_against_all_pairings(data):
    cells = data.draw(st.sampled_from([NEAR, BIG]))
    width = data.draw(st.integers(1, 2))
    size = data.draw(st.integers(1, 4))
    rows = st.lists(st.tuples(*[cells] * width), min_size=size, max_size=size)
    gold, pred = data.draw(rows), data.draw(rows)
    assert results_equal(gold, pred, "multiset") == paired(gold, pred)


@settings(deadline=None, max_examples=300)
@given(tables(NEAR, 4, 2), tables(NEAR, 4, 2))
def test_sets_of_close_numbers_by_definition(gold, pred):
    def covered(rows, others):
        return all(any(rows_close(a, b, 1e-9) for b in others) for a in rows)

    expected = covered(gold, pred) and covered(pred, gold)
    assert results_equal(gold, pred, "set") == expected


def test_close_reals_are_one_row_to_subset():
    assert distinct_rows([(0.3,), (0.1 + 0.2,), (None,), (None,)]) == 2
    assert results_equal([(0.3,), (1.0,)], [(0.1 + 0.2,), (0.3,), (1.0,)], "subset,=,2")


@given(tables(), st.randoms(), st.sampled_from(["set", "multiset"]))
def test_the_order_of_rows_is_free(rows, random, mode):
    shuffled = random.sample(rows, len(rows))
    assert results_equal(rows, shuffled, mode)
    assert results_equal(rows, rows, "list")


@given(tables(), tables(), st.sampled_from(TYPED), st.sampled_from(["position", "any"]))
def test_symmetric_and_nested(gold, pred, mode, column_order):
    forth = results_equal(gold, pred, mode, column_order=column_order)
    assert forth == results_equal(pred, gold, mode, column_order=column_order)
    if forth and mode != "set":  # list implies multiset implies set
        weaker = {"list": "multiset", "multiset": "set"}[mode]
        assert results_equal(gold, pred, weaker, column_order=column_order)
    if column_order == "position" and forth:
        assert results_equal(gold, pred, mode, column_order="any")


# ---- moving columns


def test_columns_move_only_where_allowed():
    gold, pred = [(5, "x"), (6, "y")], [("x", 5), ("y", 6)]
    for mode in (*TYPED, "subset,=,2"):
        assert not results_equal(gold, pred, mode)
        assert results_equal(gold, pred, mode, column_order="any")
    with pytest.raises(UserError, match='"bird" fixes'):
        results_equal(gold, pred, "bird", column_order="any")
    with pytest.raises(UserError, match="column_order"):
        results_equal(gold, pred, "set", column_order="sorted")


SMALL = st.sampled_from([0, 1, 1.0, "a", None])


@settings(deadline=None, max_examples=300)
@given(st.data(), st.sampled_from([*TYPED, "subset,>=,1", "subset,=,2"]))
def test_any_order_against_all_permutations(data, mode):
    width = data.draw(st.integers(1, 4))
    rows = st.lists(st.tuples(*[SMALL] * width), min_size=1, max_size=4)
    gold, pred = data.draw(rows), data.draw(rows)
    if data.draw(st.booleans()):  # half of the pairs equal in some order
        order = data.draw(st.permutations(range(width)))
        pred = [tuple(row[j] for j in order) for row in gold]
    expected = any(
        results_equal(gold, [tuple(row[j] for j in order) for row in pred], mode)
        for order in itertools.permutations(range(width))
    )
    assert results_equal(gold, pred, mode, column_order="any") == expected


def test_two_look_alike_columns_are_not_paired_wrongly():
    # avg and max agree in all rows but one.
    gold = [("a", 1, 1), ("b", 2, 2), ("c", 3, 4)]
    swapped = [(name, high, low) for name, low, high in gold]
    assert results_equal(gold, swapped, "set", column_order="any")
    assert not results_equal(gold, swapped, "set")
    scrambled = [("a", 1, 1), ("b", 2, 2), ("c", 4, 4)]
    assert not results_equal(gold, scrambled, "set", column_order="any")


def test_wide_results_of_few_values():
    """1,000 rows of 40 columns, reversed columns, shuffled rows: found without 40! tries."""
    generator = random.Random(0)
    gold = [tuple(generator.choice((0, 1, 0.5)) for _ in range(40)) for _ in range(1000)]
    pred = [row[::-1] for row in gold]
    generator.shuffle(pred)
    assert results_equal(gold, pred, "multiset", column_order="any")
    assert results_equal(gold, pred, "set", column_order="any")
    worse = [*pred[1:], tuple(1 - cell for cell in pred[0])]
    assert not results_equal(gold, worse, "multiset", column_order="any")


def test_subset_in_another_column_order():
    gold = [(i % 7, f"n{i}", i * 0.5, i) for i in range(1000)]
    pred = [row[::-1] for row in gold[100:110]]
    assert results_equal(gold, pred, "subset,=,10", column_order="any")
    assert not results_equal(
        gold, [*pred[1:], (0, 0.0, "n0", 1)], "subset,=,10", column_order="any"
    )


def test_equal_columns_are_no_reason_to_search():
    gold = [(0,) * 30 + (i, i % 2) for i in range(200)]
    pred = [(i % 2,) + (0,) * 30 + (i,) for i in range(200)]
    assert results_equal(gold, pred, "multiset", column_order="any")
    one_off = [*pred[:-1], (0,) + (0,) * 30 + (199,)]
    assert not results_equal(gold, one_off, "multiset", column_order="any")


def test_symmetric_designs_end():
    # Each row and column of an identity matrix looks like any other.
    size = 40
    unit = [tuple(int(i == j) for j in range(size)) for i in range(size)]
    assert results_equal(unit, unit[::-1], "multiset", column_order="any")

    # Two 6-cycles against one 12-cycle: refinement cannot tell them apart, the search must.
    def cycles(*lengths):
        rows, start = [], 0
        for n in lengths:
            for i in range(n):
                row = [0] * 12
                row[start + i] = row[start + (i + 1) % n] = 1
                rows.append(tuple(row))
            start += n
        return rows

    assert results_equal(cycles(6, 6), cycles(6, 6)[::-1], "multiset", column_order="any")
    assert not results_equal(cycles(6, 6), cycles(12), "multiset", column_order="any")
    assert not results_equal(cycles(5, 7), cycles(6, 6), "multiset", column_order="any")


def test_a_thousand_columns():
    gold = [tuple(range(1500)), tuple(range(1500, 3000))]
    assert results_equal(gold, [row[::-1] for row in gold], "set", column_order="any")


def test_long_chains_of_close_reals():
    """Times a minute apart as Julian days are within 1e-9 of each other: 5,000 in one chain."""
    gold = [(2459000.5 + i / 1440, i) for i in range(5_000)]
    pred = [(t * (1 + 1e-15), i) for t, i in reversed(gold)]
    assert results_equal(gold, pred, "multiset")
    assert results_equal(gold, pred, "set")
    assert results_equal([(t,) for t, _ in gold], [(t,) for t, _ in pred], "multiset")
    late = [*pred[:-1], (gold[0][0] + 1.0, 0)]
    assert not results_equal(gold, late, "multiset")


# ---- against SQLite's own comparison

EXACT = st.one_of(
    st.none(),
    st.integers(-2, 2),
    st.sampled_from([2**53, 2**53 + 1, float(2**53), -0.0, 0.5, 1.0, math.inf, -math.inf]),
    st.sampled_from(["", "a", "A", "a ", "1", "None", "é", "a\0b"]),
    st.binary(max_size=1),
)


def sqlite_equal(gold, pred, *, counted):
    """Whether neither EXCEPT the other leaves a row, with the rows' counts as a column if asked."""
    width = len((gold or pred)[0])
    names = ", ".join(f"c{j}" for j in range(width))
    shown = f"{names}, count(*)" if counted else names
    grouped = f" GROUP BY {names}" if counted else ""
    connection = sqlite3.connect(":memory:")
    for table, rows in (("gold", gold), ("pred", pred)):
        connection.execute(f"CREATE TABLE {table} ({names})")
        connection.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * width)})", rows)
    differences = [
        connection.execute(
            f"SELECT {shown} FROM {a}{grouped} EXCEPT SELECT {shown} FROM {b}{grouped}"
        ).fetchall()
        for a, b in (("gold", "pred"), ("pred", "gold"))
    ]
    connection.close()
    return differences == [[], []]


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_sqlites_except_agrees(data):
    width = data.draw(st.integers(1, 3))
    rows = st.lists(st.tuples(*[EXACT] * width), min_size=1, max_size=5)
    gold, pred = data.draw(rows), data.draw(rows)
    if data.draw(st.booleans()):  # often equal but for order and duplicates
        pred = data.draw(st.permutations(gold)) + data.draw(st.lists(st.sampled_from(gold)))
    for mode, counted in (("set", False), ("multiset", True)):
        expected = sqlite_equal(gold, pred, counted=counted)
        assert results_equal(gold, pred, mode, rel_tol=0) == expected
        if expected:
            assert results_equal(gold, pred, mode)


@settings(deadline=None)
@given(tables(), st.sampled_from([*TYPED, "bird"]), st.sampled_from(["position", "any"]))
def test_reflexive(rows, mode, column_order):
    if mode == "bird":
        column_order = "position"
    copy = [tuple(row) for row in rows]
    assert results_equal(rows, copy, mode, column_order=column_order)
    if rows and mode == "set":
        count = distinct_rows(rows)
        assert results_equal(rows, copy, f"subset,=,{count}", column_order=column_order)
        assert not results_equal(rows, copy, f"subset,>=,{count + 1}", column_order=column_order)


@settings(deadline=None)
@given(st.data(), st.sampled_from([*TYPED, "subset,>=,1"]))
def test_cells_never_move_within_one_row(data, mode):
    width, height = data.draw(st.integers(2, 4)), data.draw(st.integers(2, 4))
    cells = data.draw(st.permutations(range(width * height)))  # no two alike
    gold = [tuple(cells[i * width : (i + 1) * width]) for i in range(height)]
    order = data.draw(st.permutations(range(width)).filter(lambda p: p != sorted(p)))
    at = data.draw(st.integers(0, height - 1))
    moved = [tuple(row[j] for j in order) if i == at else row for i, row in enumerate(gold)]
    for column_order in ("position", "any"):
        assert not results_equal(gold, moved, mode, column_order=column_order)
