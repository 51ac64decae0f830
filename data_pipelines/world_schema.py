"""What a table of the quickstart's world is: its columns, and the words that ask for them.

A column carries its English beside its values, so that a question and its SQL are rendered from one
description and cannot drift apart. Words hold `{v}` (or `{low}`, `{high}`) where a value goes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Label:
    """The text column that names a row; its values are made up and never occur in a question."""

    name: str
    noun: str
    plural: str
    first: tuple[str, ...]
    second: tuple[str, ...]


@dataclass(frozen=True)
class Text:
    """A category. `where` phrases follow a noun: "films" + "of genre {v}"."""

    name: str
    noun: str
    plural: str
    values: tuple[str, ...]
    where: tuple[str, ...]
    null_share: float = 0.0
    missing: tuple[str, ...] = ()
    present: tuple[str, ...] = ()


@dataclass(frozen=True)
class Number:
    """A whole number, different in every row, between `low` and `high` inclusive."""

    name: str
    noun: str
    low: int
    high: int
    over: tuple[str, ...]
    under: tuple[str, ...]
    between: tuple[str, ...]
    most: tuple[str, ...]
    least: tuple[str, ...]


@dataclass(frozen=True)
class Date:
    """An ISO date between the years `low` and `high` inclusive; questions ask for its year."""

    name: str
    low: int
    high: int
    year: tuple[str, ...]
    null_share: float = 0.0
    missing: tuple[str, ...] = ()
    present: tuple[str, ...] = ()


Column = Label | Text | Number | Date


@dataclass(frozen=True)
class Parent:
    """A foreign key. `of` follows the child's noun and precedes the parent's filter:

    "ships" + "led by captains" + "from Malta".
    """

    table: str
    of: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table with an integer primary key `key`, as many rows as `rows`, and at most one parent."""

    name: str
    key: str
    singular: str
    plural: str
    rows: int
    columns: tuple[Column, ...]
    parent: Parent | None = None

    def column(self, name: str) -> Column:
        """The column called `name`."""
        return next(column for column in self.columns if column.name == name)

    def of_type(self, kind: type) -> tuple[Column, ...]:
        """The columns that are `kind`, in table order."""
        return tuple(column for column in self.columns if isinstance(column, kind))

    @property
    def label(self) -> Label:
        """The column that stands for a row in an answer."""
        (label,) = self.of_type(Label)
        return label


@dataclass(frozen=True)
class Database:
    """Tables, parents before children."""

    db_id: str
    tables: tuple[Table, ...]

    def table(self, name: str) -> Table:
        """The table called `name`."""
        return next(table for table in self.tables if table.name == name)
