"""What SQLite stores when a value is put into a column, and values as SQL text.

Generated rows hold values as they will be read back, so that keys can be compared without asking
SQLite. https://www.sqlite.org/datatype3.html sections 3 and 3.4.
"""

import math
import re

from jax_t2sql.equivalence.columns import Affinity, Column, Table

_NUMBER = re.compile(
    r"[ \t\n\v\f\r]*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[ \t\n\v\f\r]*"
)
_MOST = 2**63


def convert(value: object, affinity: Affinity) -> object:
    """The value after the conversion that a column's affinity asks for."""
    if affinity == "BLOB" or value is None or isinstance(value, bytes):
        return value
    if affinity == "TEXT":
        return value if isinstance(value, str) else as_text(value)
    if isinstance(value, str):
        value = _number(value)
    if isinstance(value, str):
        return value
    if affinity == "REAL":
        return float(value)
    if isinstance(value, float) and value.is_integer() and -_MOST < value < _MOST:
        return int(value)
    return value


def as_text(number: int | float) -> str:
    """A number as SQLite writes it: 15 significant digits, and REALs show that they are."""
    if isinstance(number, int):
        return str(number)
    if math.isinf(number):
        return "Inf" if number > 0 else "-Inf"
    text = f"{number + 0.0:.15g}"  # + 0.0: SQLite writes -0.0 as 0.0
    if "e" in text:
        mantissa, exponent = text.split("e")
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent}"
    return text if "." in text else text + ".0"


def _number(text: str) -> str | int | float:
    """The number that a text is, or the text."""
    match = _NUMBER.fullmatch(text)
    if not match:
        return text
    if match[1].lstrip("+-").isdigit():
        number = int(match[1])
        return number if -_MOST <= number < _MOST else float(number)
    number = float(match[1])
    # A text becomes an integer where nothing is lost by it.
    return int(number) if number.is_integer() and -_MOST < number < _MOST else number


def storable(value: object, column: Column, table: Table) -> bool:
    """Whether a converted value can stand in a column, keys and CHECKs aside."""
    if value is None:
        return not column.not_null
    if isinstance(value, float) and not math.isfinite(value):
        return False
    if isinstance(value, int) and not -_MOST <= value < _MOST:
        return False
    if column.name == table.row_id:
        return isinstance(value, int)
    if not table.strict or column.type.upper() == "ANY":
        return True
    kinds = {"TEXT": str, "REAL": float, "BLOB": bytes}
    return isinstance(value, kinds.get(column.type.upper(), int))


def literal(value: object) -> str:
    """A value as SQL text that reads back as the same value."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else ("9e999" if value > 0 else "-9e999")
    if isinstance(value, int):
        return str(value)
    if "\0" in value:
        return f"CAST(x'{value.encode('utf-8', 'surrogatepass').hex()}' AS TEXT)"
    return "'" + value.replace("'", "''") + "'"
