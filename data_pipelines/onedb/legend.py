"""The semantic layer: what tables, columns, values and joins are called, kept in a YAML file.

`draft` makes one from names, BIRD description files and a small thesaurus. `legend_file` has the
layout of the file, and reads back what people made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from data_pipelines.onedb.joins import Edge, is_link
from data_pipelines.onedb.scan import Scan, Table
from data_pipelines.onedb.words import phrase, plural, singular, split_name

# Words that mean the same in nearly every database.
_THESAURUS = {
    "superhero": ("hero",), "customer": ("client",), "movie": ("film",), "film": ("movie",),
    "employee": ("staff member",), "colour": ("color",), "physician": ("doctor",),
    "car": ("automobile",), "salary": ("pay",), "birthday": ("date of birth",),
    "telephone": ("phone",), "instructor": ("teacher",), "alignment": ("moral alignment",),
    "shop": ("store",), "store": ("shop",), "purchase": ("order",), "nation": ("country",),
    "company": ("firm",), "grade": ("mark",), "capacity": ("seating capacity",),
}  # fmt: skip
# Names of columns that say how much without saying of what.
_BARE_ADJECTIVES = ("highest", "lowest", "average", "maximum", "minimum", "best", "worst",
    "high", "low", "first", "second", "third", "last", "official", "male", "female", "final",
    "percentage of", "old", "new", "other", "current", "previous")  # fmt: skip
# What the other side of a reference is called, where its column is a verb.
_RELATIONS = {
    "reports to": "supervisor", "report to": "supervisor", "supervised by": "supervisor",
    "managed by": "manager", "created by": "creator", "owned by": "owner",
    "written by": "writer", "assigned to": "assignee", "belongs to": "owner",
    "taught by": "teacher", "directed by": "director", "produced by": "producer",
}  # fmt: skip
_KEY_ENDINGS = ("id", "uid", "code", "key", "ids", "fk", "name", "no")


@dataclass(frozen=True)
class ColumnWords:
    """What a column is called.

    Attributes:
      noun: singular; other_nouns: further ordinary ones.
      unit: said after its numbers.
      meaning: one sentence for prompts and evidence.
      values: what stored codes mean, by the stored value as text.
      use: whether questions may ask about it.
    """

    noun: str
    other_nouns: tuple[str, ...] = ()
    unit: str = ""
    meaning: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    use: bool = True


@dataclass(frozen=True)
class TableWords:
    """What a row of a table is called; `other_nouns` maps a singular to its plural."""

    noun: str
    plural: str
    other_nouns: Mapping[str, str] = field(default_factory=dict)
    purpose: str = ""
    columns: Mapping[str, ColumnWords] = field(default_factory=dict)


@dataclass(frozen=True)
class JoinWords:
    """What the parent is to the child: "eye colour" of a hero; `phrases` for link tables."""

    role: str
    other_roles: tuple[str, ...] = ()


@dataclass(frozen=True)
class Legend:
    """The words of one database.

    Attributes:
      tables: by table name.
      joins: by `Edge.name`.
      links: for link tables, what stands between the two sides: "linked to", "enrolled in".
    """

    tables: Mapping[str, TableWords]
    joins: Mapping[str, JoinWords]
    links: Mapping[str, tuple[str, ...]]

    def column(self, table: str, column: str) -> ColumnWords:
        return self.tables[table].columns[column]


def draft(scan: Scan, descriptions: Mapping[tuple[str, str], str] | None = None) -> Legend:
    """A first legend from names alone, and from descriptions where there are any.

    Args:
      scan: the database.
      descriptions: one line a column, by (table, column) in small letters.
    """
    described = descriptions or {}
    names = [phrase(table.name) for table in scan.tables]
    tables = {}
    for table in scan.tables:
        noun = singular(_split_compound(phrase(table.name), names)) or table.name
        others = {word: plural(word) for word in _THESAURUS.get(noun, ())}
        if is_link(scan, table.name):
            noun += " entry"
        columns = {
            column.name: _column_words(table, noun, column.name, column.unit, described)
            for column in table.columns
        }
        tables[table.name] = TableWords(noun, plural(noun), others, "", columns)
    joins = {edge.name: JoinWords(_role(edge, tables)) for edge in scan.edges}
    links = {
        table.name: ("linked to", "associated with")
        for table in scan.tables
        if is_link(scan, table.name)
    }
    return Legend(tables, joins, links)


def _split_compound(text: str, names: list[str]) -> str:
    """countrylanguage → country language, where country is a table."""
    if " " in text:
        return text
    for name in sorted(names, key=len, reverse=True):
        rest = text.removeprefix(name)
        if rest != text and len(rest) > 3 and len(name) > 3 and not rest.startswith("s"):
            return f"{name} {rest}"
    return text


def _column_words(
    table: Table, noun: str, name: str, unit: str, described: Mapping[tuple[str, str], str]
) -> ColumnWords:
    meaning = described.get((table.name.lower(), name.lower()), "")
    words = split_name(name)
    if unit:
        words = words[:-1]
    text = " ".join(w for i, w in enumerate(words) if i == 0 or w != words[i - 1])
    own = f"{noun} "
    if text.startswith(own) and len(text) > len(own):
        text = text[len(own) :]
    elif text.split(" ")[0] == noun.split(" ")[-1] and len(words) > 1:
        text = text.split(" ", 1)[1]
    if words[:1] in (["is"], ["has"]) and len(words) > 1:
        text = f"{text.split(' ', 1)[-1]} flag"
    if words[:2] == ["number", "of"] or words[0] == "no" and len(words) > 1 and words[1] == "of":
        text = "number of " + " ".join(words[2:])
    elif words[0] == "number" and len(words) > 1:
        text = "number of " + " ".join(words[1:])
    if text in _BARE_ADJECTIVES:
        text += " figure"
    if table.column(name).kind == "number" and singular(text) != text and " of " not in text:
        # "whose bytes is more than" is no English.
        text = f"number of {text}"
    others = _THESAURUS.get(text, ())
    long_name = meaning.split(";")[0].strip()
    if table.label == (name,) and words[-1] == "name" and len(words) == 2:
        text = "name"
    short = len(long_name.split()) <= 3 and long_name.replace(" ", "").isalpha()
    if short and not long_name.lower().startswith("the ") and long_name.lower() != text:
        others = tuple(dict.fromkeys((*others, long_name.lower())))
    return ColumnWords(text or phrase(name) or name, others, unit, meaning)


def _role(edge: Edge, tables: Mapping[str, TableWords]) -> str:
    parent = tables[edge.parent].noun
    if len(edge.child_columns) > 1:
        return parent
    words = split_name(edge.child_columns[0])
    key = split_name(edge.parent_columns[0])
    while words and words[-1] in _KEY_ENDINGS:
        words = words[:-1]
    text = " ".join(words)
    if text in _RELATIONS:
        return _RELATIONS[text]
    if not text or len(text) < 3 or text == parent or words == key[: len(words)]:
        return parent
    if text == tables[edge.child].noun or text in parent.split(" "):
        return parent
    return text
