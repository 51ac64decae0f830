"""Values that columns of a type and name usually hold."""

from collections.abc import Iterable, Sequence

from jax_t2sql.equivalence.columns import Column, Table
from jax_t2sql.equivalence.literals import as_dates
from jax_t2sql.equivalence.storing import convert, storable

_WHOLE = (1, 2, 0, 3, -1, 10, 4, 5)
_REAL = (1.0, 0.5, 2.0, 0.0, -1.5, 2.5, 10.0, 100.0)
_TEXT = ("a", "b", "A", "", "ab", "10", "9", "a b", "B", " a")
_DATES = ("2001-02-03", "2001-02-04", "2012-10-01", "1999-12-31", "2001-02-03 04:05:06", "2012")
_MOST = 40  # values of one kind for one column


def fitting(kind: Iterable[object], column: Column, table: Table) -> tuple[object, ...]:
    """Values as the column would store them, without those that it would refuse."""
    stored = dict.fromkeys((type(v), v) for v in (convert(v, column.affinity) for v in kind))
    return tuple(v for _, v in stored if v is not None and storable(v, column, table))[:_MOST]


def numbered(column: Column, number: int) -> object:
    """A value for a column, another one for each number."""
    text = column.affinity in ("TEXT", "BLOB")
    return convert(f"k{number}" if text else number, column.affinity)


def usual_values(column: Column, compared: Sequence[object]) -> Sequence[object]:
    """Values of the kinds that a column of this type and name usually holds.

    Args:
      compared: values that queries compare it with, which tell more than its type.
    """
    name = column.name.lower()
    if column.affinity == "INTEGER":
        return _WHOLE if "year" not in name else (2001, 2002, *_WHOLE)
    if column.affinity == "REAL":
        return _REAL
    dated = as_dates(compared) or any(word in name for word in ("date", "time", "birth", "day"))
    dated = dated or "DATE" in column.type.upper() or "TIME" in column.type.upper()
    texts = (*_DATES, "a") if dated else _TEXT
    if column.affinity == "TEXT":
        numbers = any(isinstance(value, (int, float)) for value in compared)
        return ("1", "2", "2.5", "10", *texts) if numbers else texts
    if column.affinity == "NUMERIC" and not dated:
        return (*_WHOLE, 0.5, 2.5)
    return (*texts, 1, 2)
