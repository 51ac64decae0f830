"""Which columns name a row to a person."""

from __future__ import annotations

from data_pipelines.onedb.columns import Column
from data_pipelines.onedb.words import split_name
from jax_t2sql.sql import Table

_NAME_WORDS = ("name", "title", "label", "caption")


def find_label(stored: Table, columns: list[Column], rows: int) -> tuple[tuple[str, ...], bool]:
    """The columns that name a row, and whether they tell all rows apart; () if none does."""
    texts = [
        c
        for c in columns
        if (c.kind in ("text", "category") and not c.date_format and "numbers as text: they sort as"
            " text" not in c.notes)
        or (c.kind == "key" and c.name in stored.primary_key and isinstance(c.low, str)
            and split_name(c.name)[-1] in _NAME_WORDS)
    ]  # fmt: skip
    own = {" ".join(split_name(stored.name)), " ".join(split_name(stored.name)).rstrip("s")}

    def words(column: Column) -> list[str]:
        return split_name(column.name)

    by_words = {" ".join(words(c)): c for c in texts}
    first = by_words.get("first name") or by_words.get("student first name")
    last = by_words.get("last name") or by_words.get("family name") or by_words.get("surname")
    if first and last and not any(w in ("name", "full name") for w in by_words):
        return (first.name, last.name), False
    ranked = []
    for place, column in enumerate(texts):
        named = words(column)
        text = " ".join(named)
        score = 0
        if text in _NAME_WORDS:
            score = 6
        elif named[-1] in _NAME_WORDS and " ".join(named[:-1]) in own or text in own:
            score = 5
        elif text == "full name":
            score = 4
        elif named[-1] in _NAME_WORDS and len(named) > 1:
            score = 2
            # Of another thing: a song in a table of singers, a customer in one of accounts.
            if column.distinct < 0.9 * max(1, rows - column.nulls):
                score = 0
        elif len(columns) <= 3 and column.distinct == rows and column.kind == "text":
            score = 1
        if score and column.distinct >= 0.5 * max(1, rows - column.nulls) and column.distinct > 0:
            ranked.append((-score, place, column))
    if not ranked:
        return (), False
    best = min(ranked)[2]
    return (best.name,), best.distinct == rows
