import doctest
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_t2sql import stats
from jax_t2sql.stats import against_proxy, binomial_test, mcnemar, paired_bootstrap, wilson

COUNTS = st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
SHARES = st.floats(0.001, 0.999)


@given(COUNTS)
@settings(max_examples=50)
def test_wilson_agrees_with_scipy(case):
    successes, n = case
    reference = scipy.stats.binomtest(successes, n).proportion_ci(method="wilson")
    assert wilson(successes, n) == pytest.approx(reference, abs=1e-12)


def test_nothing_is_known_of_no_items():
    assert wilson(0, 0) == (0.0, 1.0)
    assert binomial_test(0, 0, 0.3) == 1.0 == mcnemar(0, 0)


@given(COUNTS)
def test_bounds_solve_the_score_equation(case):
    """Wilson's definition: the shares p with |p̂ − p| = z·√(p(1 − p)/n)."""
    successes, n = case
    share = successes / n
    low, high = wilson(successes, n)
    assert 0 <= low <= share <= high <= 1
    for bound in (low, high):
        assert abs(share - bound) == pytest.approx(
            stats.Z_95 * math.sqrt(max(0.0, bound * (1 - bound)) / n), abs=1e-7
        )


@given(COUNTS, SHARES)
@settings(max_examples=40)
def test_the_exact_binomial_agrees_with_scipy(case, share):
    successes, n = case
    reference = scipy.stats.binomtest(successes, n, share).pvalue
    assert binomial_test(successes, n, share) == pytest.approx(reference, abs=1e-12)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 19))
@settings(max_examples=40)
def test_the_exact_binomial_agrees_with_fractions(successes, more, twentieths):
    n, share = successes + more, Fraction(twentieths, 20)
    terms = [math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n + 1)]
    expected = sum(term for term in terms if term <= terms[successes])
    found = binomial_test(successes, n, float(share))
    assert found == pytest.approx(float(expected), abs=1e-12)


def test_a_certain_share_is_met_or_not():
    assert (binomial_test(5, 5, 1.0), binomial_test(4, 5, 1.0)) == (1.0, 0.0)
    assert (binomial_test(0, 5, 0.0), binomial_test(1, 5, 0.0)) == (1.0, 0.0)


@pytest.mark.parametrize(("successes", "n"), [(-1, 5), (6, 5), (0, -1), (math.nan, 5)])
def test_impossible_counts_are_refused(successes, n):
    for call in (lambda: wilson(successes, n), lambda: binomial_test(successes, n, 0.5)):
        with pytest.raises(ValueError, match=r"successes must lie in 0\.\.n"):
            call()


def test_an_impossible_share_is_refused():
    with pytest.raises(ValueError, match=r"share must lie in 0\.\.1: got 1\.5"):
        binomial_test(1, 2, 1.5)


@pytest.mark.parametrize(
    ("correct", "relation"), [(440, "below"), (460, "within"), (467, "within"), (480, "above")]
)
def test_the_relation_to_a_proxy_is_that_of_the_interval(correct, relation):
    found = against_proxy(correct, 498, 0.9296)
    assert found.relation == relation and (found.p_value < 0.05) == (relation != "within")


@given(st.integers(0, 300), st.integers(0, 300))
@settings(max_examples=50)
def test_mcnemar_is_twice_the_smaller_tail(only_first, only_second):
    tail = scipy.stats.binom.cdf(min(only_first, only_second), only_first + only_second, 0.5)
    assert mcnemar(only_first, only_second) == pytest.approx(min(1.0, 2 * tail), abs=1e-12)


@pytest.mark.parity
@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 500))
@settings(max_examples=30)
def test_agrees_with_statsmodels(only_first, only_second, both):
    tables = pytest.importorskip("statsmodels.stats.contingency_tables")
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    reference = tables.mcnemar([[both, only_first], [only_second, 7]], exact=True).pvalue
    assert mcnemar(only_first, only_second) == pytest.approx(reference, abs=1e-12)
    n = both + only_first + 1
    reference = proportion.proportion_confint(both, n, method="wilson")
    assert wilson(both, n) == pytest.approx(reference, abs=1e-12)
    reference = proportion.binom_test(both, n, 0.9296)
    assert binomial_test(both, n, 0.9296) == pytest.approx(reference, abs=1e-12)


@pytest.mark.parametrize(("n", "seed"), [(7, 0), (498, 3), (1034, 11)])
def test_the_paired_bootstrap_agrees_with_scipy(n, seed):
    """Drawn alike from the same generator, so equal and not just close."""
    source = np.random.default_rng(n)
    first, second = source.integers(0, 2, n), source.integers(0, 3, n) / 2
    reference = scipy.stats.bootstrap(
        (first, second),
        lambda a, b, axis: np.mean(b - a, axis=axis),
        paired=True,
        vectorized=True,
        n_resamples=2000,
        batch=2000,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    found = paired_bootstrap(first.tolist(), second.tolist(), resamples=2000, seed=seed)
    assert (found.low, found.high) == pytest.approx((reference.low, reference.high), abs=1e-12)
    assert found.difference == pytest.approx(second.mean() - first.mean(), abs=1e-12)


def test_scores_that_are_no_pairs_are_refused():
    for first, second in (([1], [1, 0]), ([], [])):
        with pytest.raises(ValueError, match="paired scores must be as many"):
            paired_bootstrap(first, second)


def test_the_examples_in_the_docstrings():
    found = doctest.testmod(stats)
    assert found.failed == 0 and found.attempted >= 5
