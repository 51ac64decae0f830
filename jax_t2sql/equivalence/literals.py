"""Values worth trying where a column is compared with a literal: it, and those near it."""

import datetime
import re
from collections.abc import Iterable
from dataclasses import dataclass

from jax_t2sql.equivalence.atoms import Atom

_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:[ T](\d{2}):(\d{2})(?::(\d{2}))?.*)?")
_MONTH = re.compile(r"(\d{4})-(\d{2})")
_DATED = ("timetostr", "date", "datetime", "julianday", "strftime", "time", "tsordstotimestamp",
    "unixepoch", "timetounix", "year", "month", "day")  # fmt: skip
_NUMERIC = ("cast", "round", "abs", "sum", "avg", "total")
_LONG = 200  # longer literals are not varied


@dataclass(frozen=True)
class Values:
    """Values for a column: `hits` probably satisfy the comparison, `near` probably do not."""

    hits: tuple[object, ...] = ()
    near: tuple[object, ...] = ()


def values_for(atom: Atom) -> Values:
    """Values for the columns of a comparison."""
    hits: list[object] = []
    near: list[object] = []
    dated = any(call in _DATED for call in atom.calls)
    for value in atom.direct:
        if isinstance(value, str):
            _text(value, atom, dated, hits, near)
        else:
            _number(value, atom, dated, hits, near)
    for value in atom.inner:
        if isinstance(value, str) and value and "%" not in value and not dated:
            hits += [f"{value}1", f"1{value}000"] if "replace" in atom.calls else [f"a{value}b"]
            near.append(value)
    if atom.operator == "BETWEEN" and len(atom.direct) == 2:
        low, high = atom.direct
        if isinstance(low, (int, float)) and isinstance(high, (int, float)):
            hits.insert(0, (low + high) // 2 if isinstance(low, int) else (low + high) / 2)
    if atom.operator == "!=":
        hits, near = near, hits
    return Values(tuple(dict.fromkeys(hits)), tuple(dict.fromkeys(near)))


def _number(value: int | float, atom: Atom, dated: bool, hits: list, near: list) -> None:
    if dated and isinstance(value, int) and 1000 <= value <= 9999:
        _text(str(value), atom, dated, hits, near)
        return
    if "length" in atom.calls and 0 <= value < 50:
        fits = {">": 1, "<": -1}.get(atom.operator, 0)
        for more in (0, 1, -1):
            (hits if more == fits else near).append("x" * max(int(value) + more, 0))
        return
    step = 1 if isinstance(value, int) or value.is_integer() else 0.5
    below, above = value - step, value + step
    if atom.operator in ("<", "<="):
        below, value, above = above, value, below  # what satisfies stands last
    if atom.operator in ("<", "<=", ">", ">="):
        (hits if "=" in atom.operator else near).append(value)
        hits.append(above)
        near.append(below)
        if isinstance(value, int):
            hits.append(value + (above - value) * 10)
    else:
        hits.append(value)
        near += [below, above]
    if "sum" in atom.calls and isinstance(value, int):
        near += [value // 2, value // 4]
    if any(call in _NUMERIC for call in atom.calls):
        near += [str(value), f"{value}.5"]


def _text(value: str, atom: Atom, dated: bool, hits: list, near: list) -> None:
    if len(value) > _LONG:
        hits.append(value)
        return
    if atom.operator in ("LIKE", "GLOB"):
        _pattern(value, hits, near)
        return
    if dated or _DATE.fullmatch(value):
        _dates(value, atom, hits, near)
    if "substring" in atom.calls or "substr" in atom.calls:
        hits += _with_substring(value, [v for v in atom.inner if isinstance(v, int)])
    if atom.operator in ("<", "<=", ">", ">="):
        lower = atom.operator[0] == "<"
        (near if lower else hits).append(value + "x")
        (hits if lower else near).append(value[:-1] if value else "")
        (hits if "=" in atom.operator else near).append(value)
    else:
        hits.append(value)
    near += [other for other in (value.lower(), value.upper(), value.title()) if other != value]
    near += [value + "x", f"{value} "]
    parts = [part for part in re.split(r"[\s,;:/|-]+", value) if part]
    if len(parts) > 1 or "dpipe" in atom.calls or len(atom.refs) > 1:
        near += parts
    if re.fullmatch(r"-?\d{1,15}", value):
        number = int(value)
        near += [number - 1, number + 1, f"0{value}"]
    elif re.fullmatch(r"-?\d+\.\d+", value):
        near += [float(value), float(value) + 1]


def _pattern(pattern: str, hits: list, near: list) -> None:
    """Strings that match a LIKE or GLOB pattern, and some that just do not."""
    star = "*" if "*" in pattern and "%" not in pattern else "%"
    one = "?" if star == "*" else "_"
    core = pattern.replace(star, "").replace(one, "x")
    hits.append(core)
    hits.append(pattern.replace(star, "x").replace(one, "y"))
    near += [f"x{core}", f"{core}x", core.lower(), core.upper(), core[:-1], f"x{core}x"]
    near += [part for part in pattern.split(star) if part]


def _with_substring(value: str, numbers: list[int]) -> list[str]:
    start = numbers[0] if numbers else 1
    if start < 0:
        return [f"x{value}{'y' * (-start - len(value))}"]
    return [f"{'0' * (max(start, 1) - 1)}{value}{tail}" for tail in ("", "-05-06", "x")]


def _dates(value: str, atom: Atom, hits: list, near: list) -> None:
    """Dates in the form that the comparison looks at."""
    formats = [v for v in atom.inner if isinstance(v, str) and "%" in v]
    match, month = _DATE.fullmatch(value), _MONTH.fullmatch(value)
    if match:
        day = _date(int(match[1]), int(match[2]), int(match[3]))
        clock = f" {match[4]}:{match[5]}:{match[6] or '00'}" if match[4] else ""
    elif month:
        day, clock = _date(int(month[1]), int(month[2]), 15), ""
    elif re.fullmatch(r"\d{4}", value):
        day, clock = _date(int(value), 5, 6), ""
    elif re.fullmatch(r"\d{1,2}", value):
        number, clock = int(value), ""
        by_day = any("%d" in text for text in formats) or "day" in atom.calls
        day = _date(2001, 5, number) if by_day else _date(2001, number, 6)
    else:
        return
    if day is None:
        return
    hits.append(f"{day}{clock}")
    shifts = (1, -1, 31, -366) if match else (40, 366, -366)
    sign = {"<": -1, ">": 1}.get(atom.operator[0], 0)
    for shift in shifts:
        other = f"{_shifted(day, shift)}{clock}"
        (hits if sign * shift > 0 else near).append(other)
    near += [f"{day} 12:34:56", f"{day.year}-{day.month}-{day.day}"]


def _date(year: int, month: int, day: int) -> datetime.date | None:
    try:
        return datetime.date(year, month, day)
    except ValueError:
        return None


def _shifted(day: datetime.date, days: int) -> datetime.date:
    try:
        return day + datetime.timedelta(days=days)
    except OverflowError:
        return day


def as_dates(values: Iterable[object]) -> bool:
    """Whether some of these values are dates."""
    return any(isinstance(value, str) and _DATE.fullmatch(value) for value in values)
