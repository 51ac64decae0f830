"""A schema cut down to a number of tokens, for databases that outgrow a model's context.

Columns go in the order of how little they share with the question and its external knowledge, by
words of their names, comments and tables; keys stay longer, so that what is shown can be joined. A
table goes with its last column. The gold query is never looked at.
"""

import bisect
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from jax_t2sql.sql.schema import fold
from jax_t2sql.text2sql.schema_doc import ColumnKey, SchemaDoc, column_key, select_columns
from jax_t2sql.text2sql.schema_text import print_schema

_WORD = re.compile(r"[^\W\d_]+|\d+")
# Where one word of a name in camel case ends and the next begins.
_SEAM = re.compile(r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Weights of a shared word by where the schema has it.
_IN_NAME, _IN_TABLE, _IN_COMMENT = 3.0, 1.5, 1.0
# Shares of a table's best score that go to its columns, its primary key, and to both ends of a
# foreign key (there of the lesser of two tables).
_BY_TABLE, _BY_KEY, _BY_JOIN = 0.3, 0.1, 0.3
_COMMON = frozenset(
    "a an and any are as at be by did do does each for from give had has have how i in into is it"
    " its list many me much no not of on or per please refers show tell than that the their them"
    " there they this to was were what when where which who whose will with you your".split()
)


@dataclass(frozen=True)
class FittedSchema:
    """A schema as it is shown.

    Attributes:
      text: SQL text; where something is left out its first line says so.
      tokens: length of the text.
      columns: how many columns are shown; all: how many there are.
      tables_left_out: names of tables of which nothing is shown.
    """

    text: str
    tokens: int
    columns: int
    all: int
    tables_left_out: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left out."""
        return self.columns == self.all


def fit_schema(
    doc: SchemaDoc, *, budget: int, count: Callable[[str], int], about: str
) -> FittedSchema:
    """The schema within a budget, columns that matter least for the question left out.

    Args:
      doc: the whole schema.
      budget: most tokens of the text. What cannot be met, because one column is already longer, is
        met as nearly as can be; the caller sees it in `tokens`.
      count: tokens of a text, by the model's tokenizer.
      about: the question and its external knowledge.
    """
    text = print_schema(doc)
    tokens, every = count(text), _column_count(doc)
    if tokens <= budget or every == 1:
        return FittedSchema(text, tokens, every, every)
    scores = relevance(doc, about)
    # Among equals the last of the schema goes first; the best column never does.
    order = sorted(reversed(scores), key=scores.get)

    def without(dropped: int) -> FittedSchema:
        return _fitted(doc, order[dropped:], every, count)

    # The fewest columns out that meet the budget: the text gets shorter with each.
    fewest = bisect.bisect_left(range(every - 1), True, key=lambda n: without(n).tokens <= budget)
    return without(fewest)


def _fitted(
    doc: SchemaDoc, kept: Sequence[ColumnKey], every: int, count: Callable[[str], int]
) -> FittedSchema:
    part = select_columns(doc, kept)
    shown = _column_count(part)
    names = {table.name for table in part.schema.tables}
    gone = tuple(table.name for table in doc.schema.tables if table.name not in names)
    note = f"-- {shown} of {every} columns are shown: those nearest to the question."
    if gone:
        note += f" {len(gone)} of {len(doc.schema.tables)} tables are left out."
    text = f"{note}\n\n{print_schema(part)}"
    return FittedSchema(text, count(text), shown, every, gone)


def relevance(doc: SchemaDoc, about: str) -> dict[ColumnKey, float]:
    """How much each column shares with a text, in the order of the schema.

    Words are compared without endings and weighted by how few columns have them. Keys gain by what
    their tables share with it.
    """
    wanted = set(words(about))
    names = {
        column_key(t.name, c.name): set(words(c.name)) for t in doc.schema.tables for c in t.columns
    }
    said = {key: set(words(doc.comments.get(key, ""))) for key in names}
    columns_with = Counter(word for key in names for word in names[key] | said[key])

    def weight(found: Iterable[str]) -> float:
        return sum(math.log(1 + len(names) / columns_with.get(w, 1)) for w in wanted & set(found))

    tables = {fold(t.name): weight(words(t.name)) for t in doc.schema.tables}
    own = {
        key: _IN_NAME * weight(names[key])
        + _IN_COMMENT * weight(said[key] - names[key])
        + _IN_TABLE * tables[key[0]]
        for key in names
    }
    best = {table: max(own[key] for key in own if key[0] == table) for table in tables}
    gains = _key_gains(doc, best)
    return {key: score + _BY_TABLE * best[key[0]] + gains[key] for key, score in own.items()}


def _key_gains(doc: SchemaDoc, best: Mapping[str, float]) -> Counter[ColumnKey]:
    """What key columns gain: primary keys by their table, foreign keys by the lesser of both."""
    gains: Counter[ColumnKey] = Counter()
    for table in doc.schema.tables:
        here = fold(table.name)
        for name in table.primary_key:
            gains[column_key(here, name)] += _BY_KEY * best[here]
        for key in table.foreign_keys:
            there = fold(key.other_table)
            if there in best and there != here:
                gain = _BY_JOIN * min(best[here], best[there])
                for column in key.columns:
                    gains[column_key(here, column)] += gain
                for column in key.other_columns:
                    gains[column_key(there, column)] += gain
    return gains


def words(text: str) -> list[str]:
    """Lower-case words of a text or name that mean something, without their commonest endings.

    >>> words("the StarRatings of full_names, 2016")
    ['star', 'rat', 'full', 'nam', '2016']
    """
    found = (word.lower() for word in _WORD.findall(_SEAM.sub(" ", text)))
    return [_stem(word) for word in found if word not in _COMMON]


def _stem(word: str) -> str:
    for ending in ("ings", "ing", "ies", "es", "ed", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def _column_count(doc: SchemaDoc) -> int:
    return sum(len(table.columns) for table in doc.schema.tables)
