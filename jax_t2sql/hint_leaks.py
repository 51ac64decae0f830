"""Whether a hint gives the answer away: the gold query, a part of it, or its result.

A hint may name tables, columns and steps, and whatever the question says already. What is checked
is mechanical: a query written out, a run of the gold query's own tokens, a value of its result. A
hint that talks its way around all three is not found.
"""

import re
from collections.abc import Iterable, Sequence

from jax_t2sql.text2sql import Problem

# So many of the gold query's tokens in a row are a piece of SQL; fewer occur in good hints, such as
# ORDER BY price DESC.
_RUN = 6
# Of a long result one value in a hint says little; of more values only the first so many are looked
# for.
_VALUES = 200
_MANY = 20

_WRITTEN_OUT = re.compile(r"```|\bSELECT\b(?=[^.]*\bFROM\b)")
_TOKEN = re.compile(r"[^\W\d]\w*|\d+(?:\.\d+)?|[^\w\s'\"`\[\];]")
_ALIAS = re.compile(r"\b[^\W\d]\w*\.(?=[^\W\d]|[\"`\[])")
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")
_WORDS = {
    word: number
    for number, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve".split()
    )
    if word != "one"  # a word of any English sentence
}


def find_leak(hint: str, problem: Problem, rows: Iterable[Sequence] = ()) -> str:
    """What of the answer a hint gives away, in words; "" if nothing is found.

    Args:
      hint: its text.
      problem: the question with its gold query.
      rows: result of the gold query.
    """
    if _WRITTEN_OUT.search(hint):
        return "it writes a query out"
    run = _longest_run(_tokens(hint), gold := _tokens(problem.gold_sql))
    if run >= min(_RUN, len(gold)):
        return f"it has {run} tokens of the gold query in a row"
    value = _result_value(hint, problem, rows)
    return "" if value is None else f"it has a value of the result: {value!r}"


def _tokens(text: str) -> list[str]:
    """Words, numbers and signs in lower case, without quotes and aliases: prose and SQL alike."""
    return [token.lower() for token in _TOKEN.findall(_ALIAS.sub("", text))]


def _longest_run(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of the longest stretch that two sequences share."""
    longest, lengths = 0, [0] * (len(other) + 1)
    for item in one:
        previous = 0
        for j, match in enumerate(other, start=1):
            previous, lengths[j] = lengths[j], previous + 1 if item == match else 0
            longest = max(longest, lengths[j])
    return longest


def _result_value(hint: str, problem: Problem, rows: Iterable[Sequence]) -> object | None:
    """A value of the result that the hint has and the question has not."""
    values: dict[object, None] = {}
    for row in rows:
        values |= dict.fromkeys(cell for cell in row if cell is not None and cell != "")
        if len(values) >= _VALUES:
            break
    known = f"{problem.question}\n{problem.evidence}"
    found = [v for v in values if _says(hint, v) and not _says(known, v)]
    return found[0] if found and (len(values) <= _MANY or len(found) > 1) else None


def _says(text: str, value: object) -> bool:
    if isinstance(value, bool | int | float):
        return any(_is_rounded(value, number) for number in _NUMBER.findall(text)) or any(
            _WORDS.get(word) == value for word in re.findall(r"[a-z]+", text.lower())
        )
    if not isinstance(value, str):
        return False
    quoted = rf"['\"`“‘]{re.escape(value)}['\"`”’]"
    if len(value) <= 2:  # else every "a" would be one
        return re.search(quoted, text) is not None
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text, re.IGNORECASE) is not None


def _is_rounded(value: float, written: str) -> bool:
    """Whether a number in a text is this value, to the digits that it is written with."""
    written = written.replace(",", "")
    digits = len(written.partition(".")[2])
    return round(float(value), digits) == float(written)
