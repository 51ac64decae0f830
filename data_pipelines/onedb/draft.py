"""A question before it is worded: its SQL, its answer as noun phrases, and near misses."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from data_pipelines.onedb.columns import Column
from data_pipelines.onedb.conditions import (
    PLAIN_OPS,
    Condition,
    column_ref,
    conditions_on,
    draw_condition,
    identifier,
)
from data_pipelines.onedb.joins import Hop, Path
from data_pipelines.onedb.live import Live
from data_pipelines.onedb.scan import Table
from data_pipelines.onedb.voice import Voice
from data_pipelines.onedb.words import value_text


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A question with its query.

    Attributes:
      family: the template's name; tier: 1 to 4.
      sql: the gold query.
      asks: noun phrases of the answer ("the names of …"), to be put into any sentence.
      many: the phrases are plural.
      questions: whole direct questions, where there are more natural ones than "What is …?".
      weaker: queries that miss a piece; each must give another answer, or that piece is idle.
      conditions: for evidence lines and leak reports.
      path: name of the join path; "" of one table.
      grading: how answers are compared.
      subject: the table whose rows the sentence speaks of, for checks on its columns.
    """

    family: str
    tier: int
    sql: str
    asks: tuple[str, ...]
    many: bool = True
    questions: tuple[str, ...] = ()
    weaker: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    path: str = ""
    grading: str = "set"
    subject: str = ""


@dataclass(frozen=True)
class Source:
    """FROM with its joins: one table bare, several under the aliases T1, T2, …

    Attributes:
      tables: in the order of their aliases.
      steps: for each table but the first, the place that it is joined to and the hop from there.
      left: keep rows that meet no partner.
    """

    tables: tuple[str, ...]
    steps: tuple[tuple[int, Hop], ...] = ()
    left: bool = False

    @classmethod
    def of(cls, *paths: Path, left: bool = False) -> Source:
        """Paths that all leave the same table."""
        tables, steps = [paths[0][0].source], []
        for path in paths:
            here = 0
            for hop in path:
                steps.append((here, hop))
                tables.append(hop.target)
                here = len(tables) - 1
        return cls(tuple(tables), tuple(steps), left)

    def alias(self, place: int) -> str:
        return f"T{place + 1}" if len(self.tables) > 1 else ""

    def ref(self, place: int, name: str) -> str:
        """A column of the table at that place; -1 is the last."""
        return column_ref(self.alias(place % len(self.tables)), name)

    def labels(self, place: int, table: Table) -> str:
        """The columns that name a row."""
        return ", ".join(self.ref(place, name) for name in table.label)

    @property
    def sql(self) -> str:
        if len(self.tables) == 1:
            return f"FROM {identifier(self.tables[0])}"
        parts = [f"FROM {identifier(self.tables[0])} AS T1"]
        join = "LEFT JOIN" if self.left else "INNER JOIN"
        for place, (before, hop) in enumerate(self.steps, start=1):
            here, there = (before, place) if hop.up else (place, before)
            pairs = zip(hop.edge.child_columns, hop.edge.parent_columns, strict=True)
            on = " AND ".join(f"{self.ref(here, a)} = {self.ref(there, b)}" for a, b in pairs)
            parts.append(f"{join} {identifier(hop.target)} AS T{place + 1} ON {on}")
        return " ".join(parts)


def where(*conditions: str) -> str:
    """A WHERE clause with its leading blank, or nothing."""
    kept = [condition for condition in conditions if condition]
    return " WHERE " + " AND ".join(kept) if kept else ""


def without_each(conditions: Sequence[str], render: Callable[[Sequence[str]], str]) -> list[str]:
    """The query once without each of its conditions."""
    return [render([c for j, c in enumerate(conditions) if j != i]) for i in range(len(conditions))]


@dataclass
class Draw:
    """One attempt at one question: random choices and the words for them.

    Every method that finds nothing suitable raises LookupError, which means: draw again.
    """

    live: Live
    rng: random.Random
    voice: Voice = field(init=False)

    def __post_init__(self) -> None:
        self.voice = Voice(self.live, self.rng)

    def table(self, accept: Callable[[Table], bool] = lambda table: True) -> Table:
        """A random table with rows; one whose rows have names more often than not."""
        fitting = [t for t in self.live.tables if accept(t)]
        named = [t for t in fitting if t.named]
        return self.choose(named if named and self.rng.random() < 0.8 else fitting)

    def choose(self, options: Sequence):
        """A random one; LookupError without any."""
        if not options:
            raise LookupError("nothing to choose from")
        return self.rng.choice(options)

    def column(self, table: Table, *kinds: str, but: Sequence[Column] = ()) -> Column:
        """A random usable column of these kinds."""
        taken = [c.key for c in but]
        return self.choose([c for c in self.live.usable(table, *kinds) if c.key not in taken])

    def number(self, table: Table, but: Sequence[Column] = ()) -> Column:
        """A number that can be compared, averaged and ranked."""
        taken = [c.key for c in but]
        found = [c for c in self.live.usable(table, "number") if c.distinct > 3]
        return self.choose([c for c in found if c.key not in taken])

    def condition(
        self,
        table: Table,
        *,
        ops: tuple[str, ...] | None = None,
        but: Sequence[Column] = (),
        kinds: tuple[str, ...] = ("category", "flag", "number", "year", "date", "text"),
    ) -> Condition:
        """A random condition on a random column, none of `but`."""
        taken = [c.key for c in but]
        found = [c for c in self.live.usable(table, *kinds) if c.key not in taken]
        fitting = [c for c in found if set(conditions_on(c)) & set(ops or PLAIN_OPS)]
        return draw_condition(self.live, self.choose(fitting), self.rng, ops=ops)

    def conditions(self, table: Table, count: int, but: Sequence[Column] = ()) -> list[Condition]:
        """Conditions on different columns."""
        found: list[Condition] = []
        for _ in range(count):
            found.append(self.condition(table, but=[*but, *(c.column for c in found)]))
        return found

    def named_row(self, table: Table) -> tuple[Condition, str]:
        """A condition that picks one row by its name, and that name as told."""
        if not table.named or len(table.label) != 1:
            raise LookupError(f"rows of {table.name} have no name")
        column = table.column(table.label[0])
        value = self.choose(self.live.unique_values(column))
        return Condition(column, "equal", (value,)), value_text(value)

    def grouping(self, table: Table) -> tuple[Column, str]:
        """A column whose equal values make a group, and its noun: a category, or a parent's key."""
        options = [(c, self.voice.noun(c)) for c in self.live.usable(table, "category")]
        for edge in self.live.edges:
            if edge.child == table.name and len(edge.child_columns) == 1 and not edge.single:
                options.append((table.column(edge.child_columns[0]), self.voice.role(edge)))
        return self.choose(options)

    def end_condition(self, table: Table) -> Condition:
        """A condition on the far end of a path: by name where rows have one, else any."""
        if table.named and len(table.label) == 1 and self.rng.random() < 0.65:
            column = table.column(table.label[0])
            values = self.live.values(column)
            return Condition(column, "equal", (self.choose(values),))
        try:
            return self.condition(table)
        except LookupError:
            if not table.label:
                raise
        column = table.column(table.label[0])
        if len(table.label) > 1 or not self.live.values(column):
            raise LookupError(f"{table.name} has nothing to ask for")
        return Condition(column, "equal", (self.choose(self.live.values(column)),))

    def counted(self, path: Path) -> str:
        """What COUNT takes so that no row of the path's start counts twice.

        LookupError where a join multiplies rows that no one column tells apart.
        """
        if not any(hop.multiplies for hop in path):
            return "*"
        return f"DISTINCT {Source.of(path).ref(0, self.identity(path[0].source))}"

    def identity(self, table: str) -> str:
        """The column that tells rows apart; LookupError without one."""
        found = self.live.table(table).identity
        if found is None:
            raise LookupError(f"rows of {table} cannot be told apart by one column")
        return found

    def grouped(self, source: Source, place: int, table: Table) -> str:
        """What to group by so that rows of one name stay apart."""
        if table.label_unique and len(table.label) == 1:
            return source.ref(place, table.label[0])
        return source.ref(place, self.identity(table.name))

    def subject(self, name: str, *, link: bool = False) -> Table:
        """The table, if its rows can be listed; with `link` they need only be counted."""
        table = self.live.table(name)
        listed = bool(table.label) and not self.live.is_link(name)
        if table.rows < 2 or not (listed or link):
            raise LookupError(f"rows of {name} cannot be listed")
        return table


@dataclass(frozen=True)
class Family:
    """A named way to make a question. `by_path` families are given the path to walk."""

    name: str
    tier: int
    make: Callable
    by_path: bool = False


FAMILIES: dict[str, Family] = {}


def family(tier: int, *, by_path: bool = False):
    """Registers a function as the family of its name."""

    def register(make: Callable) -> Callable:
        FAMILIES[make.__name__] = Family(make.__name__, tier, make, by_path)
        return make

    return register
