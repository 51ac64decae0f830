"""How far an accuracy on n questions can be trusted, and whether two of them differ."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

Z_95 = NormalDist().inv_cdf(0.975)
# A probability this much above the observed one still counts as equal to it: rounding must not
# decide which outcomes are "as extreme".
_EQUAL = 1 + 1e-7


def wilson(successes: float, n: int, *, z: float = Z_95) -> tuple[float, float]:
    r"""Wilson score interval of a share, as ``(low, high)`` within [0, 1].

    .. math::
        \frac{\hat p + \frac{z^2}{2n} \pm z \sqrt{\frac{\hat p (1 - \hat p)}{n} + \frac{z^2}{4n^2}}}
             {1 + \frac{z^2}{n}}, \qquad \hat p = \frac{successes}{n}

    Unlike :math:`\hat p \pm z\,\mathrm{se}` it keeps its coverage near 0 and 1 and for small n,
    which is where scores on a few hundred questions lie.

    Args:
      successes: number of correct items, 0 to ``n``.
      n: number of items. With ``n == 0`` nothing is known: the interval is (0, 1).
      z: normal quantile; the default makes the interval hold 95 %.

    Raises:
      ValueError: unless ``0 <= successes <= n``.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
    JASA 22 (1927) 209–212. L. D. Brown, T. T. Cai, A. DasGupta, "Interval estimation for a
    binomial proportion", Statistical Science 16 (2001) 101–133.

    >>> low, high = wilson(82, 100)
    >>> f"{low:.4f} {high:.4f}"
    '0.7333 0.8830'
    >>> wilson(0, 0)
    (0.0, 1.0)
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes must lie in 0..n: got {successes} of n={n}")
    if n == 0:
        return 0.0, 1.0
    share = successes / n
    denominator = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / denominator
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / denominator
    # At 0 and n the bounds are exactly 0 and 1; rounding must not put the share outside.
    return min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half))


def binomial_test(successes: int, n: int, share: float) -> float:
    r"""Exact two-sided p-value of ``successes`` among ``n`` where each has probability ``share``.

    .. math:: p = \sum_{k:\; P(k) \le P(successes)} P(k), \qquad
              P(k) = \binom{n}{k} share^k (1 - share)^{n - k}

    With ``n == 0`` nothing speaks against any share: 1.

    Raises:
      ValueError: unless ``0 <= successes <= n`` and ``0 <= share <= 1``.

    Source: C. J. Clopper, E. S. Pearson, "The use of confidence or fiducial limits illustrated in
    the case of the binomial", Biometrika 26 (1934) 404–413; two-sided by the outcomes' likelihood.

    >>> f"{binomial_test(460, 498, 0.9296):.4f}"
    '0.5987'
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes must lie in 0..n: got {successes} of n={n}")
    if not 0 <= share <= 1:
        raise ValueError(f"share must lie in 0..1: got {share}")
    if share in (0, 1):
        return float(successes == n * share)
    weights = _relative_probabilities(n, share)
    extreme = math.fsum(w for w in weights if w <= weights[successes] * _EQUAL)
    return min(1.0, extreme / math.fsum(weights))


def _relative_probabilities(n: int, share: float) -> list[float]:
    """P(0), …, P(n) of a binomial over P(mode), by the ratio of neighbours: nothing overflows, and
    what underflows is too small to count."""
    mode = min(n, int((n + 1) * share))
    odds = share / (1 - share)
    weights = [1.0] * (n + 1)
    for k in range(mode, n):
        weights[k + 1] = weights[k] * ((n - k) / (k + 1) * odds)
    for k in range(mode, 0, -1):
        weights[k - 1] = weights[k] * (k / ((n - k + 1) * odds))
    return weights


@dataclass(frozen=True)
class ProxyTest:
    """An accuracy against a stated one that is taken as exact.

    Attributes:
      proxy: the stated accuracy.
      p_value: exact and two-sided.
      relation: "above" or "below" where the 95 % Wilson interval lies wholly there, else "within":
        then the two cannot be told apart.
    """

    proxy: float
    p_value: float
    relation: str


def against_proxy(correct: float, n: int, proxy: float) -> ProxyTest:
    """Tests an accuracy against a stated one, such as a published human score.

    `correct` may be a mean of counts: the interval takes it as it is, the exact test its nearest
    whole number.
    """
    low, high = wilson(correct, n)
    relation = "above" if low > proxy else "below" if high < proxy else "within"
    return ProxyTest(proxy, binomial_test(round(correct), n, proxy), relation)


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided p-value that two runs over the same questions are equally accurate.

    Args:
      only_first, only_second: questions that the one answered right and the other wrong. Those on
        which both agree say nothing.

    Source: Q. McNemar, "Note on the sampling error of the difference between correlated proportions
    or percentages", Psychometrika 12 (1947) 153–157; exact, without the normal approximation.

    >>> round(mcnemar(10, 2), 6)
    0.038574
    """
    return binomial_test(only_first, only_first + only_second, 0.5)


@dataclass(frozen=True)
class Bootstrap:
    """A difference of means and its 95 % percentile interval."""

    difference: float
    low: float
    high: float


def paired_bootstrap(
    first: Sequence[float], second: Sequence[float], *, resamples: int = 10_000, seed: int = 0
) -> Bootstrap:
    """Mean of ``second`` minus mean of ``first``, with the interval of the paired bootstrap.

    Questions are drawn with repetition, each with both its scores: what makes a question hard for
    both runs cancels. The same seed gives the same interval.

    Args:
      first, second: one score a question, in the same order.

    Raises:
      ValueError: their lengths differ, or are 0.

    Source: B. Efron, R. J. Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13.

    >>> paired_bootstrap([0, 1, 0, 0], [1, 1, 1, 1])
    Bootstrap(difference=0.75, low=0.25, high=1.0)
    """
    import numpy as np  # the programs that only print an interval start without it

    if len(first) != len(second) or not first:
        raise ValueError(
            f"paired scores must be as many, and some: got {len(first)} and {len(second)}"
        )
    gains = np.subtract(second, first, dtype=np.float64)
    generator = np.random.default_rng(seed)
    rows = max(1, 2_000_000 // len(gains))  # drawn at a time, so that memory stays bounded
    means: list = []
    for begin in range(0, resamples, rows):
        count = min(rows, resamples - begin)
        drawn = generator.integers(0, len(gains), (count, len(gains)))
        means.append(gains[drawn].mean(axis=-1))
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    return Bootstrap(float(gains.mean()), float(low), float(high))
