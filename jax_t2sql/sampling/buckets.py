"""Shape buckets: a few sizes stand for all, so that XLA compiles a few programs and no more."""


def bucket(size: int, *, smallest: int = 1, largest: int | None = None) -> int:
    """The least of smallest·{1, 1.5, 2, 3, 4, 6, 8, …} that is >= `size`, cut off at `largest`.

    Steps of a half waste at most a third of the rows or columns and give 2·log2(range) sizes.

    >>> [bucket(n, smallest=32) for n in (1, 33, 49, 65, 97)]
    [32, 48, 64, 96, 128]
    >>> bucket(70, smallest=32, largest=72)
    72
    """
    if largest is not None and size > largest:
        raise ValueError(f"size {size} is over the largest bucket, {largest}")
    value = smallest
    while value < size:
        half_more = value + value // 2
        value = half_more if half_more >= size and value > 1 else value * 2
    return value if largest is None else min(value, largest)
