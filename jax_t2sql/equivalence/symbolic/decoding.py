"""The database that a model describes, as rows to be stored."""

from fractions import Fraction

from jax_t2sql.equivalence.catalog import Catalog, Rows
from jax_t2sql.equivalence.symbolic.solving import Answer
from jax_t2sql.equivalence.symbolic.tables import Tables
from jax_t2sql.equivalence.symbolic.terms import Number, Term
from jax_t2sql.equivalence.symbolic.values import BLOB_LOW, LARGEST, TEXT_LOW, SqlValue, Val

_LETTERS = 6  # of a text that only has to lie somewhere
_DIGITS = 257


def decode(catalog: Catalog, tables: Tables, answer: Answer) -> Rows:
    """The rows that are there, columns that are computed left out.

    Nearly what the model says: texts are cut short and numbers rounded. A model is a candidate, to
    be replayed.
    """
    result: Rows = {table.name: [] for table in catalog.tables}
    for name, rows in tables.items():
        table = catalog.table(name)
        for row in rows:
            if not _truth(row.present, answer):
                continue
            result[table.name].append(tuple(
                _value(cell, answer)
                for cell, column in zip(row.cells, table.columns, strict=True)
                if not column.generated
            ))  # fmt: skip
    return result


def _truth(term: Term, answer: Answer) -> bool:
    return term.value if term.is_const else answer.truths.get(term.args[0], False)


def _value(cell: Val, answer: Answer) -> SqlValue:
    if _truth(cell.null, answer):
        return None
    key = answer.numbers.get(cell.key.args[0], cell.key.bounds[0])
    if key >= TEXT_LOW:
        return _text(key) if key < BLOB_LOW else _bytes(key - BLOB_LOW)
    key = max(min(key, LARGEST - 1), 1 - LARGEST)
    whole = Fraction(key).denominator == 1
    return int(key) if whole else float(key)


def _text(key: Number) -> str:
    data = _bytes(Fraction(key) - TEXT_LOW)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(chr(byte) if byte < 128 else "z" for byte in data)


def _bytes(fraction: Fraction) -> bytes:
    data = bytearray()
    while fraction and len(data) < 200:
        fraction *= _DIGITS
        digit = int(fraction)
        fraction -= digit
        data.append(max(digit - 1, 0))
        if len(data) >= _LETTERS and fraction.denominator > _DIGITS**12:
            break
    return bytes(data)
