"""One condition on one column: its SQL and the words that say it, from the same choices."""

from __future__ import annotations

import random
from dataclasses import dataclass

from data_pipelines.onedb.columns import Column
from data_pipelines.onedb.live import Live
from data_pipelines.onedb.words import article, join_and, value_text
from jax_t2sql.sql import quote_identifier

PLAIN_OPS = ("equal", "other", "among", "over", "under", "between", "during", "before", "after",
    "missing", "present", "starts", "contains")  # fmt: skip


@dataclass(frozen=True)
class Condition:
    """A condition.

    Attributes:
      column: of which table and column.
      op: one of `PLAIN_OPS`; "measured" leaves placeholders such as a height of 0 out; "that" is
        satisfied by the one row that the sentence speaks of and has no SQL.
      values: its constants.
      pick: which of several phrases says it.
    """

    column: Column
    op: str
    values: tuple[object, ...] = ()
    pick: int = 0

    def sql(self, ref: str) -> str:
        """The condition as SQL, `ref` being the column's name with its alias."""
        first = literal(self.values[0]) if self.values else ""
        match self.op:
            case "equal":
                return f"{ref} = {first}"
            case "other":
                return f"{ref} <> {first}"
            case "among":
                return f"{ref} IN ({', '.join(map(literal, self.values))})"
            case "over" | "after":
                return f"{ref} > {first}"
            case "under" | "before":
                return f"{ref} < {first}"
            case "between":
                return f"{ref} BETWEEN {first} AND {literal(self.values[1])}"
            case "during":
                return f"STRFTIME('%Y', {ref}) = {first}"
            case "missing":
                return f"{ref} IS NULL"
            case "present":
                return f"{ref} IS NOT NULL"
            case "measured":
                return f"{ref} > 0"
            case "starts":
                return f"{ref} LIKE '{self.values[0]}%'"
            case "contains":
                return f"{ref} LIKE '%{self.values[0]}%'"
        raise ValueError(f"unknown condition {self.op!r}")

    def predicate(self, live: Live) -> str:
        """What follows "whose height …": "is over 180 cm"."""
        words = live.legend.column(*self.column.key)
        unit = f" {words.unit}" if words.unit else ""
        told = [self._told(value, words.values) for value in self.values]
        match self.op:
            case "equal":
                return f"is {told[0]}{unit}"
            case "other":
                return f"is not {told[0]}{unit}"
            case "among":
                return f"is either {join_and(told, 'or')}"
            case "over":
                than = self._one_of("over", "more than", "above", "greater than")
                return f"is {than} {told[0]}{unit}"
            case "under":
                than = self._one_of("under", "less than", "below", "lower than")
                return f"is {than} {told[0]}{unit}"
            case "between":
                ends = self._one_of("", " inclusive")
                return f"is between {told[0]} and {told[1]}{unit}{ends}"
            case "during":
                return f"is in {self.values[0]}"
            case "before":
                return f"is before {self.values[0]}"
            case "after":
                return f"is {self._one_of('after', 'later than')} {self.values[0]}"
            case "missing":
                return self._one_of("is not recorded", "is missing", "is unknown (NULL)")
            case "present":
                return self._one_of("is recorded", "is known", "is not missing")
            case "measured":
                return "is not 0"
            case "starts":
                return f'{self._one_of("starts with", "begins with")} "{self.values[0]}"'
            case "contains":
                return f'contains "{self.values[0]}"'
        raise ValueError(f"unknown condition {self.op!r}")

    def object_phrase(self, live: Live, noun: str) -> str | None:
        """What follows "with" or "have": "a height over 180 cm"; None where that reads badly."""
        said = self.predicate(live)
        match self.op:
            case "over" | "under" | "between" if self.column.kind == "number":
                of = "of " if said.startswith(("is more", "is less")) else ""
                return f"{article(noun)} {of}{said.removeprefix('is ')}"
            case "equal" if self.column.kind in ("number", "year"):
                return f"{article(noun)} of {said.removeprefix('is ')}"
            case "missing":
                return f"no {noun} recorded"
        return None

    def _one_of(self, *phrases: str) -> str:
        return phrases[self.pick % len(phrases)]

    @staticmethod
    def _told(value: object, meanings) -> str:
        return meanings.get(str(value)) or value_text(value)


def literal(value: object) -> str:
    """A value as an SQL literal."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value) if isinstance(value, float) else str(value)


def column_ref(alias: str, name: str) -> str:
    """alias.name, quoted where it must be."""
    return f"{alias}.{identifier(name)}" if alias else identifier(name)


_KEYWORDS = frozenset(
    "abort action add after all alter always analyze and as asc attach autoincrement before begin"
    " between by cascade case cast check collate column commit conflict constraint create cross"
    " current current_date current_time current_timestamp database default deferrable deferred"
    " delete desc detach distinct do drop each else end escape except exclude exclusive exists"
    " explain fail filter first following for foreign from full generated glob group groups having"
    " if ignore immediate in index indexed initially inner insert instead intersect into is isnull"
    " join key last left like limit match materialized natural no not nothing notnull null nulls of"
    " offset on or order others outer over partition plan pragma preceding primary query raise"
    " range recursive references regexp reindex release rename replace restrict returning right"
    " rollback row rows savepoint select set table temp temporary then ties to transaction"
    " trigger unbounded union unique update using vacuum values view virtual when where window"
    " with without".split()
)


def identifier(name: str) -> str:
    """A name as SQL reads it back: bare where that is safe."""
    bare = name.isascii() and name.isidentifier() and name.lower() not in _KEYWORDS
    return name if bare else quote_identifier(name)


def round_near(value: float, low: float, high: float) -> float | int:
    """A round number near `value` that lies strictly between `low` and `high`, else `value`."""
    for digits in (1, 2, 3, 4):
        text = float(f"{value:.{digits}g}")
        if low < text < high:
            return int(text) if text.is_integer() else text
    return value


def draw_condition(
    live: Live,
    column: Column,
    rng: random.Random,
    *,
    ops: tuple[str, ...] | None = None,
) -> Condition:
    """A random condition on a column that some rows meet and, as far as one value tells, not all.

    Raises:
      LookupError: the column allows none of the `ops`.
    """
    allowed = [op for op in conditions_on(column) if ops is None or op in ops]
    if not allowed:
        raise LookupError(f"{column.table}.{column.name} has no such condition")
    op = rng.choice(allowed)
    pick = rng.randrange(12)
    if op in ("missing", "present"):
        return Condition(column, op, (), pick)
    values = live.values(column)
    if len(values) < 2:
        raise LookupError(f"{column.table}.{column.name} has fewer than two values")
    if op in ("equal", "other"):
        common = [v for v, count in column.values if count > 1 and v in values]
        pool = common if op == "equal" and common and rng.random() < 0.8 else values
        return Condition(column, op, (rng.choice(pool),), pick)
    if op == "among":
        if len(values) < 4:
            raise LookupError(f"{column.table}.{column.name} has too few values")
        return Condition(column, op, tuple(sorted(rng.sample(values, 2))), pick)
    if op in ("starts", "contains"):
        return _draw_like(column, op, values, rng, pick)
    if column.kind == "date":
        return _draw_date(column, op, values, rng, pick)
    middle = values[len(values) // 8 : -(len(values) // 8) or None]
    first = _threshold(column, rng.choice(middle), rng)
    if op == "between":
        second = _threshold(column, rng.choice(middle), rng)
        low, high = sorted((first, second))
        if low == high:
            raise LookupError("an empty range")
        return Condition(column, op, (low, high), pick)
    return Condition(column, op, (first,), pick)


def _threshold(column: Column, value: object, rng: random.Random) -> object:
    if column.kind == "year" or (column.integer and column.high - column.low < 100):
        return int(value)
    return round_near(float(value), float(column.low), float(column.high))


def _draw_like(column: Column, op: str, values: list, rng: random.Random, pick: int) -> Condition:
    text = str(rng.choice(values))
    if op == "starts":
        part = text[:1]
        # LIKE ignores case, and so does a person who asks for a first letter.
        if not part.isalpha() or not part.isascii():
            raise LookupError("no letter begins the value")
        return Condition(column, op, (part.upper(),), pick)
    words = [w for w in text.split() if len(w) > 3 and w.isalpha() and w.isascii()]
    if not words or len(text.split()) < 2:
        raise LookupError("no word in the value")
    return Condition(column, op, (rng.choice(words),), pick)


def _draw_date(column: Column, op: str, values: list, rng: random.Random, pick: int) -> Condition:
    value = str(rng.choice(values))
    if op == "during":
        return Condition(column, op, (value[:4],), pick)
    if op == "between":
        low, high = sorted(str(v)[:10] for v in rng.sample(values, 2))
        if low == high:
            raise LookupError("an empty range")
        return Condition(column, op, (low, high), pick)
    return Condition(column, op, (value[:10],), pick)


def conditions_on(column: Column) -> list[str]:
    """Conditions that make sense on a column of this kind."""
    # Where a dash or a 0 says "unknown" too, nobody can tell what "missing" means.
    doubtful = column.placeholder_low or "marks for missing values" in column.notes
    null = ["missing", "present"] if 0 < column.nulls < column.rows and not doubtful else []
    match column.kind:
        case "category":
            return ["equal", "equal", "equal", "other", "among", *null]
        case "flag":
            return ["equal"]
        case "number" if column.distinct > 2:
            if column.placeholder_low:
                return ["over", "over", *null]
            extra = ["equal"] if column.integer and column.distinct <= 60 else []
            return ["over", "over", "under", "under", "between", *extra, *null]
        case "year":
            return ["equal", "after", "before", "between", *null]
        case "date" if column.date_format == "date":
            return ["during", "during", "before", "after", "between", *null]
        case "date":
            return ["during", *null]
        case "name":
            return ["starts", "contains"]
        case "text" if not column.notes or column.notes == ("marks for missing values",):
            return ["equal", "contains", *null]
        case _:
            return []
