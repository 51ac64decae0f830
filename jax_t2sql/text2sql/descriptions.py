"""Column descriptions as BIRD ships them: database_description/<table>.csv beside the database.

The files were written by many hands on many machines, so encodings, blanks in names, byte order
marks and short rows are taken as they come: a description is a comment, and no fault in one may
keep a database from being used.
"""

import codecs
import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from jax_t2sql.sql.schema import fold
from jax_t2sql.text2sql.values import displayable

_FOLDER = "database_description"
_MAX_CHARS = 400
# Longest first: the UTF-32 mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def decode_text(data: bytes) -> str:
    """Text of unknown encoding: by its byte order mark, else UTF-8, else Windows-1252.

    Never fails: bytes that none of these explains are read as Latin-1.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    for encoding in ("utf-8", "cp1252"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return data.decode("latin-1")


def find_descriptions(database: Path) -> list[Path]:
    """The CSV files that describe a database file (links are followed), sorted by name."""
    folder = database.resolve().parent / _FOLDER
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix.lower() == ".csv")


def read_descriptions(files: Iterable[Path]) -> Mapping[tuple[str, str], str]:
    """One line for each described column, by (table, column) with ASCII letters lowered.

    Args:
      files: CSV files whose names are those of the tables.
    """
    found = {}
    for path in files:
        for column, text in _rows(path):
            if text:
                found[fold(path.stem), fold(column)] = text
    return found


def _rows(path: Path) -> Iterator[tuple[str, str]]:
    """Yields (column, description)."""
    # NUL bytes end a row early in some versions of the reader; they mean nothing here.
    text = decode_text(path.read_bytes()).replace("\0", "")
    rows = csv.reader(io.StringIO(text, newline=""))
    try:
        heads = [head.strip().lower() for head in next(rows, [])]
        for row in rows:
            cells = dict(zip(heads, (" ".join(cell.split()) for cell in row), strict=False))
            name = cells.get("original_column_name", "")
            if name:
                yield name, _describe(name, cells)
    except csv.Error:  # a cell beyond all bounds: what came before it stands
        return


def _describe(name: str, cells: Mapping[str, str]) -> str:
    """Long name, description and values of a column, each said once."""
    parts: list[str] = []
    for field in ("column_name", "column_description", "value_description"):
        part = cells.get(field, "")
        said = {_plain(other) for other in (name, *parts)}
        if part and _plain(part) not in said and not any(_plain(part) in o for o in said):
            parts.append(part)
    text = displayable("; ".join(parts))
    return text if len(text) <= _MAX_CHARS else text[:_MAX_CHARS].rstrip() + "…"


def _plain(text: str) -> str:
    return "".join(character for character in text.lower() if character.isalnum())
