"""One SQL value as text that a model can read, and copy into its next query."""

import math
import re

# Text that would read as something else when printed bare: a number, NULL, a blob literal, a quoted
# text, blanks that matter, a column border. It is printed as a SQL literal instead.
_AMBIGUOUS = re.compile(
    r"\s|.*\s\Z|'|.*\||null\Z|x'|[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?\Z|[+-]?(?:inf|nan)\Z|\Z",
    re.IGNORECASE | re.DOTALL,
)
# Everything that would end a line or confuse a terminal, and halves of surrogate pairs.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NAMED_ESCAPES = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def displayable(text: str) -> str:
    """The text on one line, encodable as UTF-8.

    Line breaks and control characters become escapes; a byte that was no UTF-8 in the database
    (there a lone surrogate, by Python's surrogateescape) becomes \\xNN.
    """
    return _UNPRINTABLE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if character in _NAMED_ESCAPES:
        return _NAMED_ESCAPES[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def show_value(value: object, *, max_chars: int, quote: bool = False) -> tuple[str, bool]:
    """A cell as text, and whether it was cut.

    NULL is NULL, blobs are x'…', REALs keep their point (1.0), text is bare unless that would read
    as another value; then, or with `quote`, it is a SQL literal ('NULL', '7', ' a').

    Args:
      value: what sqlite3 returns: None, int, float, str or bytes.
      max_chars: longer values keep this many characters and tell their whole length.
      quote: always print text as a literal.
    """
    if value is None:
        return "NULL", False
    if isinstance(value, str):
        length = len(value)
        if length > max_chars:
            return f"{displayable(value[:max_chars])}… [cut, {length} characters]", True
        if quote or _AMBIGUOUS.match(value):
            value = "'" + value.replace("'", "''") + "'"
        return displayable(value), False
    if isinstance(value, bytes):
        shown = f"x'{value[: max_chars // 2].hex()}"
        cut = 2 * len(value) > max_chars
        return (f"{shown}… [cut, {len(value)} bytes]", True) if cut else (shown + "'", False)
    if isinstance(value, float) and math.isinf(value):
        return ("9e999" if value > 0 else "-9e999"), False  # what SQLite reads as infinity
    return repr(value), False
