import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_t2sql.grading import soft_f1 as module
from jax_t2sql.grading.soft_f1 import soft_f1

ROWS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", None])), max_size=6)


@pytest.mark.parametrize(
    ("gold", "pred", "score"),
    [
        ([], [], 1),
        ([(1,)], [], 0),
        ([], [(1,)], 0),
        ([(1,)], [(2,)], 0),
        ([(1, "a")], [("a", 1)], 1),  # columns in another order are forgiven
        ([(1, "a")], [(1,)], 2 / 3),  # matched 1/2, missing 1/2: precision 1, recall 1/2
        ([(1,)], [(1, 2)], 2 / 3),  # matched 1, extra 1
        ([(1,), (2,)], [(1,)], 2 / 3),  # a whole row missing
        ([(1,), (2,)], [(2,), (1,)], 0),  # laid side by side in their order
        ([(1,), (1,), (2,)], [(1,), (2,), (2,)], 1),  # repeated rows count once
        ([("Apple", 325), ("Orange", None), ("Banana", 119)],
         [(325, "Apple"), (191, "Orange"), (None, "Banana")], 2 / 3),  # the published example
    ],
)  # fmt: skip
def test_by_hand(gold, pred, score):
    assert soft_f1(gold, pred) == pytest.approx(score)


@given(ROWS, ROWS)
def test_it_is_a_share_and_one_for_equal_results(gold, pred):
    assert 0 <= soft_f1(gold, pred) <= 1 + 1e-12
    assert soft_f1(gold, gold) == 1


def test_the_example_in_the_docstring():
    assert doctest.testmod(module) == (0, 2)
