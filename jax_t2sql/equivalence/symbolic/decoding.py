"""The database that a model describes, as rows to be stored."""

import itertools
from fractions import Fraction

from jax_t2sql.equivalence.catalog import Catalog, Rows
from jax_t2sql.equivalence.symbolic.solving import Answer
from jax_t2sql.equivalence.symbolic.tables import Tables
from jax_t2sql.equivalence.symbolic.terms import Number, Term
from jax_t2sql.equivalence.symbolic.values import (
    BLOB_LOW,
    LARGEST,
    TEXT_LOW,
    SqlValue,
    Val,
    value_of,
)

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def decode(catalog: Catalog, tables: Tables, answer: Answer) -> Rows:
    """The rows that are there, columns that are computed left out.

    Nearly what the model says: of a text that the queries do not name, a model tells no more than
    where it stands in the order. A model is a candidate, to be replayed.
    """
    spelt = _spelt(answer)
    result: Rows = {table.name: [] for table in catalog.tables}
    for name, rows in tables.items():
        table = catalog.table(name)
        for row in rows:
            if not _truth(row.present, answer):
                continue
            result[table.name].append(tuple(
                _value(cell, answer, spelt)
                for cell, column in zip(row.cells, table.columns, strict=True)
                if not column.generated
            ))  # fmt: skip
    return result


def _truth(term: Term, answer: Answer) -> bool:
    return term.value if term.is_const else answer.truths.get(term.args[0], False)


def _value(cell: Val, answer: Answer, spelt: dict[Number, str | bytes]) -> SqlValue:
    if _truth(cell.null, answer):
        return None
    key = answer.numbers.get(cell.key.args[0], cell.key.bounds[0])
    if key >= TEXT_LOW:
        return spelt.get(key, "")
    key = max(min(key, LARGEST - 1), 1 - LARGEST)
    return int(key) if Fraction(key).denominator == 1 else float(key)


def _spelt(answer: Answer) -> dict[Number, str | bytes]:
    """Spellings of all texts and blobs of a model, in its order as far as short ones can be."""
    named = {name: value_of(False, key, False) for name, key in answer.texts.items()}
    result: dict[Number, str | bytes] = {TEXT_LOW: "", BLOB_LOW: b"", **named}
    unnamed = sorted({n for n in answer.numbers.values() if n >= TEXT_LOW and n not in result})
    marks = sorted(result)
    for below, group in itertools.groupby(unnamed, lambda n: max(m for m in marks if m <= n)):
        above = next((m for m in marks if m > below and m != BLOB_LOW), None)
        start, stop = result[below], None if above is None else result[above]
        for number, spelling in zip(group, _between(start, stop), strict=False):
            result[number] = spelling
    return result


def _between(start: str | bytes, stop: str | bytes | None):
    """Ever later texts that begin with one text and come before another."""
    for length in (1, 2):
        for letters in itertools.combinations_with_replacement(_LETTERS, length):
            added = "".join(letters)
            text = start + (added if isinstance(start, str) else added.encode())
            if not isinstance(stop, type(start)) or text < stop:
                yield text
