"""A scanned database with its words and an open sandbox: what templates draw from."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from data_pipelines.onedb.columns import Column, is_blank_mark, is_plain
from data_pipelines.onedb.joins import Edge, Path, all_paths, is_link
from data_pipelines.onedb.legend import Legend
from data_pipelines.onedb.scan import Scan, Table
from jax_t2sql.sql import Outcome, Sandbox, quote_identifier

_MOST_VALUES = 20_000


@dataclass
class Live:
    """A database that questions are drawn from.

    Attributes:
      scan, legend: what is in it and what that is called.
      sandbox: runs its queries; every one has the sandbox's limits.
    """

    scan: Scan
    legend: Legend
    sandbox: Sandbox
    _outcomes: dict[str, Outcome] = field(default_factory=dict, repr=False)
    _values: dict[tuple[str, ...], list] = field(default_factory=dict, repr=False)

    def run(self, sql: str) -> Outcome:
        """The outcome of a query; the same text is run once."""
        if sql not in self._outcomes:
            if len(self._outcomes) > 50_000:
                self._outcomes.clear()
            self._outcomes[sql] = self.sandbox.execute(sql, warn=False)
        return self._outcomes[sql]

    @cached_property
    def paths(self) -> list[Path]:
        """Every join path of one to three hops."""
        return all_paths(self.scan)

    @cached_property
    def edges(self) -> list[Edge]:
        return self.scan.live_edges()

    @cached_property
    def tables(self) -> list[Table]:
        """Tables with at least two rows, link tables left out."""
        return [t for t in self.scan.tables if t.rows > 1 and not self.is_link(t.name)]

    @cached_property
    def _links(self) -> frozenset[str]:
        return frozenset(t.name for t in self.scan.tables if is_link(self.scan, t.name))

    def is_link(self, table: str) -> bool:
        """Whether the table does nothing but link two others."""
        return table in self._links

    def table(self, name: str) -> Table:
        return self.scan.table(name)

    def usable(self, table: Table, *kinds: str) -> list[Column]:
        """Columns of these kinds that the legend lets questions use."""
        words = self.legend.tables[table.name].columns
        return [c for c in table.of_kind(*kinds) if words[c.name].use]

    def values(self, column: Column) -> list:
        """Sorted distinct values that a question can name; marks for "unknown" left out.

        Values that others equal but for case or blanks are left out too: no question could say
        which of them is meant.
        """
        if column.key not in self._values:
            ref = f"{quote_identifier(column.table)}.{quote_identifier(column.name)}"
            sql = (
                f"SELECT DISTINCT {ref} FROM {quote_identifier(column.table)}"
                f" WHERE {ref} IS NOT NULL ORDER BY 1 LIMIT {_MOST_VALUES}"
            )
            found = [row[0] for row in self.run(sql).rows]
            self._values[column.key] = _nameable(found)
        return self._values[column.key]

    def unique_values(self, column: Column) -> list:
        """Nameable values that one row alone has."""
        key = (column.table, column.name, "unique")
        if key not in self._values:
            ref = quote_identifier(column.name)
            sql = (
                f"SELECT {ref} FROM {quote_identifier(column.table)} WHERE {ref} IS NOT NULL"
                f" GROUP BY {ref} HAVING COUNT(*) = 1"
            )
            once = {row[0] for row in self.run(sql).rows}
            self._values[key] = [v for v in self.values(column) if v in once]
        return self._values[key]


def _nameable(values: list) -> list:
    seen: dict[str, int] = {}
    for value in values:
        if isinstance(value, str):
            key = value.strip().lower()
            seen[key] = seen.get(key, 0) + 1
    kept = []
    for value in values:
        if isinstance(value, str):
            plain = value == value.strip() and is_plain(value) and 0 < len(value) <= 60
            if not plain or is_blank_mark(value) or seen[value.lower()] > 1 or '"' in value:
                continue
        kept.append(value)
    return kept
