"""What a column holds, judged by its values first and by its name second."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from data_pipelines.onedb.words import split_name

Kind = Literal[
    "key", "name", "category", "flag", "number", "year", "date", "text", "mixed", "empty"
]

MOST_CATEGORIES = 40
_IDENTIFYING = frozenset(
    "id ids key code uid uuid guid zip zipcode postcode postal phone telephone fax email e-mail"
    " mail url link website password pin ssn isbn hash latitude longitude coordinate coordinates"
    " lat lng long image photo picture login token".split()
)
_NUMBERED = ("number", "no", "nr", "sequence", "seq", "index", "line")
# Numbers of which "the highest" has no clear sense, or whose average says nothing.
_RANKED = frozenset(
    "rank ranking position place order seq sequence level grade class priority version day month"
    " hour minute second floor room season round week semester term stage game jersey number"
    " quarter bib lane seed".split()
)
_ADDITIVE = frozenset(
    "amount total quantity sales population revenue cost costs salary attendance votes points area"
    " hours credits budget profit profits money payment value balance deposit enrollment"
    " medals goals wins losses stock passengers killed injured deaths casualties fee fees charge"
    " donation damage acres employees students count assets income spent tonnage people members"
    " investment expenses purchase shares downloads visitors".split()
)
_UNITS = {
    "cm": "cm", "kg": "kg", "km": "km", "mm": "mm", "ft": "feet", "lb": "lb", "lbs": "lb",
    "mi": "miles", "usd": "dollars", "ms": "milliseconds", "sec": "seconds", "kmh": "km/h",
    "mph": "mph", "sqft": "square feet", "inches": "inches", "dollars": "dollars",
    "minutes": "minutes", "meters": "meters", "metres": "metres", "feet": "feet", "hp": "hp",
}  # fmt: skip
_NOT_UNITS_ALONE = frozenset(("hours",))
_ISO_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_ISO_TIME = re.compile(_ISO_DATE.pattern + r"[T ]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?Z?")
_OTHER_DATE = re.compile(
    r"\d{1,2}[-/. ]\d{1,2}[-/. ]\d{2,4}|\d{1,2}[ -]\w{3,9}[ -]\d{2,4}|\w{3,9} \d{1,2},? \d{4}"
    r"|\d{8}|\d{4}/\d{1,2}/\d{1,2}"
)
_NUMERIC_TEXT = re.compile(r"[-+]?\d+(\.\d+)?")
_FLAGS = ({"0", "1"}, {"t", "f"}, {"true", "false"}, {"y", "n"}, {"yes", "no"})
_BLANK_MARKS = ("", "-", "--", "n/a", "na", "null", "none", "unknown", "?", "nil", "not available")


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column and what was found in it.

    Attributes:
      kind: what questions may do with it.
      rows, nulls, distinct: counts over the whole table.
      low, high: least and greatest value, NULL left out.
      values: the commonest values with their counts, most first; all of them for a category.
      date_format: "date" or "datetime" (ISO), "other" where dates do not sort as text.
      unit: of a number, "" if none is known.
      integer: every value is a whole number.
      notes: oddities that a person writing queries wants to know.
    """

    table: str
    name: str
    declared: str
    kind: Kind
    rows: int
    nulls: int
    distinct: int
    low: object = None
    high: object = None
    values: tuple[tuple[object, int], ...] = ()
    date_format: str = ""
    unit: str = ""
    integer: bool = False
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return self.table, self.name

    @property
    def null_share(self) -> float:
        return self.nulls / self.rows if self.rows else 0.0

    @property
    def additive(self) -> bool:
        """A total of it means something."""
        words = set(split_name(self.name))
        rated = words & {
            "rate",
            "rating",
            "percentage",
            "ratio",
            "average",
            "per",
            "age",
            "share",
            "unit",
        }
        return self.kind == "number" and bool(words & _ADDITIVE) and not rated

    @property
    def rankable(self) -> bool:
        """ "The highest" has one sense; false of ranks, of which 1 may be best."""
        return self.kind in ("number", "date", "year") and not self.placeholder_low

    @property
    def placeholder_low(self) -> bool:
        """The least value, 0 or -1, stands for "unknown" by all appearance."""
        return "placeholder 0" in self.notes


def unit_of(name: str) -> str:
    """The unit that a column's last word names."""
    words = split_name(name)
    if len(words) < 2 or words[-1] in _NOT_UNITS_ALONE:
        return ""
    return _UNITS.get(words[-1], "")


def judge(
    *,
    name: str,
    is_key: bool,
    rows: int,
    nulls: int,
    distinct: int,
    types: frozenset[str],
    values: Sequence[tuple[object, int]],
    sample: Sequence[object],
    low: object,
) -> tuple[Kind, str, tuple[str, ...]]:
    """A column's kind, its date format and notes on it.

    Args:
      is_key: part of the primary key or of a foreign key.
      types: SQLite's storage classes that occur, NULL left out.
      values: commonest values with counts. sample: some of the values.
    """
    words = split_name(name)
    filled = rows - nulls
    notes = []
    if filled == 0:
        return "empty", "", ("all NULL",) if rows else ()
    if "blob" in types or ("text" in types and len(types) > 1):
        return "mixed", "", ("mixed storage classes",)
    texts = [value for value in sample if isinstance(value, str)]
    if texts:
        notes += _text_notes(texts, values)
    identifying = is_key or bool(set(words) & _IDENTIFYING) or words[-1] in _NUMBERED
    unprintable = sum(not is_plain(t) for t in texts)
    if unprintable:
        notes.append("unprintable characters")
    if unprintable > 0.2 * len(texts):
        return "mixed", "", tuple(notes)
    if types == {"text"}:
        return _judge_text(words, identifying, is_key, filled, distinct, texts, values, notes)
    if identifying and not (words[-1] in _NUMBERED and words[0] in ("number", "total")):
        return "key", "", tuple(notes)
    if distinct == 2 and {str(v) for v, _ in values} == {"0", "1"}:
        return "flag", "", tuple(notes)
    numbers = [value for value in sample if isinstance(value, int | float)]
    is_year = (
        any(w in ("year", "founded", "built", "opened") for w in words)
        and all(float(v).is_integer() and -3000 <= v <= 2100 for v in numbers)
        and any(v > 1000 for v in numbers)
    )
    if is_year:
        return "year", "", tuple(notes)
    if set(words) & _RANKED and "of" not in words:
        return ("category" if distinct <= 12 and filled > distinct else "key"), "", tuple(notes)
    placeholders = dict(values).get(low, 0)
    if low in (0, -1) and placeholders >= 3 and placeholders >= 0.02 * filled and distinct > 10:
        second = sorted({v for v in numbers if v != low})
        if second and second[0] > 10 * max(1, abs(low)):
            notes.append("placeholder 0")
    return "number", "", tuple(notes)


def _judge_text(
    words: list[str],
    identifying: bool,
    is_key: bool,
    filled: int,
    distinct: int,
    texts: list[str],
    values: Sequence[tuple[object, int]],
    notes: list[str],
) -> tuple[Kind, str, tuple[str, ...]]:
    """Kind, date format and notes of a column of texts."""
    clean = [t for t in texts if t.strip().lower() not in _BLANK_MARKS] or texts
    if all(_ISO_DATE.fullmatch(t) for t in clean) and len(clean) == len(texts):
        return "date", "date", tuple(notes)
    if all(_ISO_DATE.fullmatch(t) or _ISO_TIME.fullmatch(t) for t in texts):
        return "date", "datetime", tuple(notes)
    if sum(bool(_OTHER_DATE.fullmatch(t)) for t in clean) > 0.8 * len(clean):
        return "text", "other", (*notes, "dates that do not sort as text")
    if all(re.fullmatch(r"[12]\d{3}", t) for t in clean) and "year" in words:
        return "category" if distinct <= MOST_CATEGORIES else "text", "", (*notes, "year as text")
    if all(_NUMERIC_TEXT.fullmatch(t) for t in clean):
        notes.append("numbers as text: they sort as text")
        return ("key" if identifying else "text"), "", tuple(notes)
    if distinct == 2 and {str(v).lower() for v, _ in values} in _FLAGS:
        return "flag", "", tuple(notes)
    longest = max(map(len, texts))
    if is_key or (identifying and words[-1] not in ("code", "codes")):
        return "key", "", tuple(notes)
    if distinct <= MOST_CATEGORIES and filled >= 1.5 * distinct and longest <= 60:
        return "category", "", tuple(notes)
    if identifying:
        return "key", "", tuple(notes)
    return "text", "", tuple(notes)


def _text_notes(texts: Sequence[str], values: Sequence[tuple[object, int]]) -> list[str]:
    notes = []
    if any(t != t.strip() for t in texts):
        notes.append("blanks at the ends of values")
    folded: dict[str, str] = {}
    for text in (v for v, _ in values if isinstance(v, str)):
        key = text.strip().lower()
        if folded.setdefault(key, text) != text:
            notes.append("values that differ in case or blanks alone")
            break
    if any(t.strip().lower() in _BLANK_MARKS for t in texts):
        notes.append("marks for missing values")
    return notes


def is_plain(text: str) -> bool:
    """Whether a text can stand in a question: printable, on one line, whole UTF-8."""
    return text.isprintable() and "\ufffd" not in text


def is_blank_mark(value: object) -> bool:
    """Whether a stored value stands for "nothing known"."""
    return isinstance(value, str) and value.strip().lower() in _BLANK_MARKS
