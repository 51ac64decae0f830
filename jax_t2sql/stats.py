"""Confidence intervals for shares: how far an accuracy on n questions can be trusted."""

import math


def wilson(successes: float, n: int, *, z: float = 1.959964) -> tuple[float, float]:
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
