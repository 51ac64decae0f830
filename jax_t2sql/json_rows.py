"""Files of rows: JSON lines or one JSON array, with a line number for every fault."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from jax_t2sql.errors import UserError

_BLANKS = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def json_rows(file: BinaryIO, path: Path) -> Iterator[tuple[int, Any]]:
    """Yields (line, value) for each row of JSON lines or of one JSON array.

    JSON lines are held in memory one at a time, an array's text as a whole. A byte order mark,
    blank lines and CRLF are fine.

    Args:
      file: at its start.
      path: its name, for errors.

    Raises:
      UserError: the first fault found, with file, line and column. What is of a row is the caller's
        to check.
    """
    is_first = True
    # Bytes break at "\n" alone: U+2028 and its like may stand inside a JSON string.
    for line, data in enumerate(file, start=1):
        if line == 1:
            data = data.removeprefix(b"\xef\xbb\xbf")
        if not data.strip():
            continue
        if is_first and data.lstrip().startswith(b"["):
            yield from _array_items(_text_of(data + file.read(), path, line), path, line)
            return
        is_first = False
        text = _text_of(data, path, line)
        value, end = _decode(text, _skip_blanks(text, 0), path, line)
        if text[end:].strip():
            raise _not_json(text, end, path, line, "text after the object")
        yield line, value


def _array_items(text: str, path: Path, first_line: int) -> Iterator[tuple[int, Any]]:
    """Yields (line, value) for each item of a JSON array."""
    line, counted = first_line, 0  # line breaks before `counted` are in `line`
    at = _skip_blanks(text, text.index("[") + 1)
    while text[at : at + 1] != "]":
        line += text.count("\n", counted, at)
        counted = at
        value, at = _decode(text, at, path, first_line)
        yield line, value
        at = _skip_blanks(text, at)
        goes_on = text[at : at + 1] == ","
        if goes_on:
            at = _skip_blanks(text, at + 1)
        if goes_on == (text[at : at + 1] == "]"):
            raise _not_json(text, at, path, first_line, "expected , and an item, or the final ]")
    end = _skip_blanks(text, at + 1)
    if end < len(text):
        raise _not_json(text, end, path, first_line, "text after the array")


def _skip_blanks(text: str, at: int) -> int:
    return _BLANKS.match(text, at).end()


def _decode(text: str, at: int, path: Path, first_line: int) -> tuple[Any, int]:
    """The JSON value that begins at an offset, and where it ends."""
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise _not_json(text, error.pos, path, first_line, error.msg) from None
    except RecursionError:
        raise _not_json(text, at, path, first_line, "nested too deeply") from None
    except ValueError as error:  # a number of more digits than Python reads
        raise _not_json(text, at, path, first_line, str(error)) from None


def _not_json(text: str, at: int, path: Path, first_line: int, fault: str) -> UserError:
    """The fault at an offset of a text that begins on `first_line` of the file."""
    line = first_line + text.count("\n", 0, at)
    column = at - text.rfind("\n", 0, at)
    return UserError(
        f"{path}:{line}: not JSON: {fault} at column {column}; expected one object a line, or one"
        " array of objects"
    )


def _text_of(data: bytes, path: Path, line: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line += data.count(b"\n", 0, error.start)
        raise UserError(
            f"{path}:{line}: byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None
