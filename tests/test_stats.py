import doctest
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from jax_t2sql import stats
from jax_t2sql.stats import wilson

COUNTS = st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(COUNTS)
def test_agrees_with_scipy(case):
    successes, n = case
    reference = binomtest(successes, n).proportion_ci(method="wilson")
    # The default z is the 97.5 % quantile to seven digits.
    assert wilson(successes, n) == pytest.approx(reference, abs=1e-7)


def test_nothing_is_known_of_no_items():
    assert wilson(0, 0) == (0.0, 1.0)


@given(COUNTS)
def test_bounds_solve_the_score_equation(case):
    """Wilson's definition: the shares p with |p̂ − p| = z·√(p(1 − p)/n)."""
    successes, n = case
    share, z = successes / n, 1.959964
    low, high = wilson(successes, n)
    assert 0 <= low <= share <= high <= 1
    for bound in (low, high):
        assert abs(share - bound) == pytest.approx(
            z * math.sqrt(max(0.0, bound * (1 - bound)) / n), abs=1e-7
        )


@pytest.mark.parametrize(("successes", "n"), [(-1, 5), (6, 5), (0, -1), (math.nan, 5)])
def test_impossible_counts_are_refused(successes, n):
    with pytest.raises(ValueError, match=r"successes must lie in 0\.\.n"):
        wilson(successes, n)


def test_the_examples_in_the_docstring():
    assert doctest.testmod(stats) == (0, 3)
