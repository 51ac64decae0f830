"""Finding the order of columns: exact where few values leave much to search, else it says so."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_t2sql.sql import columns, results_equal
from jax_t2sql.sql.closeness import pairs_up
from jax_t2sql.sql.undecided import Undecided


def shuffled(rows, generator):
    """The rows in another order, their columns too."""
    order = list(range(len(rows[0])))
    generator.shuffle(order)
    rows = [tuple(row[j] for j in order) for row in rows]
    generator.shuffle(rows)
    return rows


def incidence(edges, size):
    """A row for each edge of a graph, a column for each vertex."""
    return [tuple(int(vertex in edge) for vertex in range(size)) for edge in edges]


def neighbours(differs_by):
    """Edges of a graph on the cells of a 4 × 4 torus."""
    cells = list(itertools.product(range(4), repeat=2))
    return [
        (i, j)
        for i, j in itertools.combinations(range(16), 2)
        if differs_by((cells[i][0] - cells[j][0]) % 4, (cells[i][1] - cells[j][1]) % 4)
    ]


# Two graphs alike in every local count (strongly regular, of the same parameters), yet not equal.
ROOK = neighbours(lambda x, y: (x == 0) != (y == 0))
SHRIKHANDE = neighbours(lambda x, y: (x, y) in {(0, 1), (0, 3), (1, 0), (3, 0), (1, 1), (3, 3)})


@pytest.mark.parametrize("values", [2, 3])
@pytest.mark.parametrize("count", [1, 2, 5, 20, 200, 900])
def test_a_few_rows_of_a_wide_result_of_few_values(values, count):
    generator = random.Random(count)
    gold = [tuple(generator.randrange(values) for _ in range(40)) for _ in range(1000)]
    pred = generator.sample(shuffled(gold, generator), count)
    assert results_equal(gold, pred, f"subset,=,{len(set(pred))}", column_order="any")
    # Under a fresh value no row is one of gold's.
    odd = [*pred[1:], (values, *pred[0][1:])]
    assert not results_equal(gold, odd, "subset,>=,1", column_order="any")


def test_one_cell_of_a_wide_result_of_few_values():
    generator = random.Random(0)
    gold = [tuple(generator.randrange(2) for _ in range(40)) for _ in range(1000)]
    pred = shuffled(gold, generator)
    i = next(i for i in range(1, 1000) if pred[i][0] != pred[0][0] and pred[i][1:] != pred[0][1:])
    # Two cells of a column change places: every column and most counts are as they were.
    first, other = pred[0], pred[i]
    pred[0], pred[i] = (other[0], *first[1:]), (first[0], *other[1:])
    for mode in ("set", "multiset", "subset,>=,1"):
        assert not results_equal(gold, pred, mode, column_order="any")


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_containment_against_all_orders(data):
    width = data.draw(st.integers(1, 5))
    row = st.tuples(*[st.integers(0, 1)] * width)
    gold, pred = data.draw(st.sets(row, min_size=1)), data.draw(st.sets(row, min_size=1))
    orders = list(itertools.permutations(range(width)))
    expected = any(set(columns.reorder(list(pred), order)) <= gold for order in orders)
    found = list(columns.permutations(list(gold), list(pred), contained=True))
    assert bool(found) == expected
    assert all(set(columns.reorder(list(pred), order)) <= gold for order in found)


def test_graphs_alike_in_every_count():
    generator = random.Random(0)
    rook, shrikhande = incidence(ROOK, 16), incidence(SHRIKHANDE, 16)
    assert len(rook) == len(shrikhande) == 48
    assert results_equal(rook, shuffled(rook, generator), "set", column_order="any")
    assert not results_equal(rook, shuffled(shrikhande, generator), "set", column_order="any")


def test_a_search_that_meets_its_bound_is_no_answer(monkeypatch):
    monkeypatch.setattr(columns, "_MAX_CELLS", 0)
    rook, shrikhande = incidence(ROOK, 16), incidence(SHRIKHANDE, 16)
    with pytest.raises(Undecided, match="too much alike"):
        results_equal(rook, shrikhande, "set", column_order="any")
    # What is told apart at first sight costs nothing of it.
    wide = [tuple(range(i, i + 40)) for i in range(1000)]
    assert results_equal(wide, [row[::-1] for row in wide], "set", column_order="any")


def test_close_numbers_in_columns_that_move():
    a, b, c = 1.0, 1.0 + 0.9e-9, 1.0 + 1.8e-9  # a and c are no longer close
    gold, swapped = [(a, c, "x"), (a, c, "y")], [(c, a, "x"), (c, a, "y")]
    assert results_equal(gold, swapped, "list", column_order="any")
    bridge = [(b, b, "z")]
    # Of the orders of two columns alike but for close numbers not all are tried.
    with pytest.raises(Undecided, match="rel_tol"):
        results_equal(gold + bridge, [(c, c, "x"), (a, a, "y"), *bridge], "set", column_order="any")


def test_pairing_too_many_close_numbers_is_no_answer(monkeypatch):
    monkeypatch.setattr("jax_t2sql.sql.closeness._MAX_LOOKS", 3)
    chain = [(1.0 + 0.6e-9 * i, 1.0 + 0.6e-9 * (i * 7 % 5)) for i in range(5)]
    leader = {cell: 1.0 for row in chain for cell in row}
    moved = [(x, 1.0 + 0.6e-9 * ((i * 7 + 1) % 5)) for i, (x, _) in enumerate(chain)]
    with pytest.raises(Undecided, match="to pair them"):
        pairs_up(chain, moved, leader, 1e-9)
