"""Fewer rows that still tell two queries apart."""

from collections.abc import Callable

from jax_t2sql.equivalence.catalog import Rows


def minimise(rows: Rows, tells_apart: Callable[[Rows], bool], *, tries: int = 200) -> Rows:
    """Leaves out rows as long as the rest tells the queries apart: halves first, then single rows.

    Args:
      tells_apart: whether a database keeps the constraints and shows a real difference.
      tries: how often it is asked at most.
    """
    for name in sorted(rows, key=lambda name: -len(rows[name])):
        size = max(len(rows[name]) // 2, 1)
        while rows[name] and tries > 0:
            start, shrunk = 0, False
            while start < len(rows[name]) and tries > 0:
                fewer = {**rows, name: rows[name][:start] + rows[name][start + size :]}
                tries -= 1
                if tells_apart(fewer):
                    rows, shrunk = fewer, True
                else:
                    start += size
            if size == 1 and not shrunk:
                break
            size = max(size // 2, 1)
    return rows
