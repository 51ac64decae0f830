"""The words of one question: nouns chosen once, then noun phrases and relative clauses.

Clauses nest along a join path: "publishers that have at least one superhero whose eye colour is
Blue". What refers to what is always said by position, so that no clause can attach twice.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from data_pipelines.onedb.columns import Column
from data_pipelines.onedb.conditions import Condition
from data_pipelines.onedb.joins import Edge, Hop, Path
from data_pipelines.onedb.live import Live
from data_pipelines.onedb.scan import Table
from data_pipelines.onedb.words import join_and, plural


@dataclass
class Voice:
    """Nouns for one question, each chosen once."""

    live: Live
    rng: random.Random
    _chosen: dict[object, object] = field(default_factory=dict)

    def _choose(self, key: object, options: Sequence[object]) -> object:
        """The first option half of the time, so that the plainest word stays the commonest."""
        if key not in self._chosen:
            plainest = self.rng.random() < 0.6 or len(options) == 1
            self._chosen[key] = options[0] if plainest else self.rng.choice(options)
        return self._chosen[key]

    def pick(self, *options: str) -> str:
        """One of several phrases, all alike likely."""
        return self.rng.choice(options)

    def _nouns(self, table: str) -> tuple[str, str]:
        words = self.live.legend.tables[table]
        options = [(words.noun, words.plural), *words.other_nouns.items()]
        return self._choose(("table", table), options)

    def one(self, table: str) -> str:
        """superhero"""
        return self._nouns(table)[0]

    def many(self, table: str) -> str:
        """superheroes"""
        return self._nouns(table)[1]

    def noun(self, column: Column) -> str:
        """height"""
        words = self.live.legend.column(*column.key)
        return self._choose(column.key, [words.noun, *words.other_nouns])

    def nouns(self, column: Column) -> str:
        """heights"""
        return plural(self.noun(column))

    def measure(self, column: Column) -> str:
        """height in cm"""
        unit = self.live.legend.column(*column.key).unit
        return self.noun(column) + (f" (in {unit})" if unit else "")

    def role(self, edge: Edge) -> str:
        """eye colour"""
        words = self.live.legend.joins[edge.name]
        if words.role == self.live.legend.tables[edge.parent].noun:
            return self.one(edge.parent)
        return self._choose(("role", edge.name), [words.role, *words.other_roles])

    def link(self, table: str) -> str:
        """linked to"""
        return self._choose(("link", table), self.live.legend.links.get(table, ("linked to",)))

    # What stands for a row in an answer.

    def label_noun(self, table: Table, *, many: bool) -> str:
        """names; of a table whose rows are their own name "" is given."""
        if not table.label:
            return "rows"
        nouns = [self.noun(table.column(name)) for name in table.label]
        if len(nouns) == 1 and self._is_itself(table, nouns[0]):
            return ""
        if many:
            nouns = [plural(noun) for noun in nouns]
        return join_and(nouns)

    def _is_itself(self, table: Table, noun: str) -> bool:
        words = self.live.legend.tables[table.name]
        own = self.live.legend.column(table.name, table.label[0])
        return own.noun == words.noun or noun in (words.noun, *words.other_nouns)

    def names_of(self, table: Table, *, clause: str = "", many: bool = True) -> str:
        """the names of the superheroes whose …"""
        whole = f"{self.many(table.name) if many else self.one(table.name)} {clause}".strip()
        label = self.label_noun(table, many=many)
        return f"the {label} of the {whole}" if label else f"the {whole}"

    def counted(self, number: int, table: str) -> str:
        """more than … 3 superheroes, one superhero"""
        return f"{number} {self.many(table)}" if number != 1 else f"one {self.one(table)}"

    # Clauses.

    def whose(self, conditions: Sequence[Condition]) -> str:
        """whose height is over 180 cm and whose gender is Male"""
        return " and ".join(
            f"whose {self.noun(c.column)} {c.predicate(self.live)}" for c in conditions
        )

    def relative(
        self,
        path: Path,
        condition: Condition | str | None,
        *,
        many: bool = True,
        negated: bool = False,
    ) -> str:
        """The clause that says that a row meets a condition at the end of a path.

        Args:
          path: hops from the row.
          condition: at the end; or a name of the end's row ("Blue", "that colour"); or nothing,
            where it is enough that there is such a row (paths that end downwards).
          many: the clause follows a plural.
          negated: "that have no …" (paths that begin downwards).
        """
        owners = []
        hops = list(path)
        while hops and hops[0].up:
            owners.append(self.role(hops.pop(0).edge))
        chain = "'s ".join(owners)
        if not hops:
            told = self._owned(path[-1].target, condition)
            return f"whose {chain}{told}"
        verb = self._existing(tuple(hops), condition, many=many and not owners, negated=negated)
        return f"whose {chain} {verb}" if owners else f"that {verb}"

    def _owned(self, table: str, condition: Condition | str | None) -> str:
        """After a noun for the row: " is Blue", "'s height is over 180 cm", " is that colour"."""
        if isinstance(condition, str):
            return f" is {condition}"
        own = self.live.table(table)
        if own.label == (condition.column.name,) and condition.op in ("equal", "other", "among"):
            return f" {condition.predicate(self.live)}"
        return f"'s {self.noun(condition.column)} {condition.predicate(self.live)}"

    def _existing(
        self, path: Path, condition: Condition | str | None, *, many: bool, negated: bool
    ) -> str:
        """have at least one superhero whose … ; are linked to the superpower Flight"""
        hop, rest = path[0], path[1:]
        have, are = ("have", "are") if many else ("has", "is")
        if self.live.is_link(hop.target) and rest and rest[0].up:
            link = self.link(hop.target)
            not_ = "not " if negated else ""
            there, beyond = rest[0].target, rest[1:]
            if not beyond and isinstance(condition, str):
                thing = condition if condition.startswith("that ") else (
                    f"the {self.one(there)} {condition}"
                )  # fmt: skip
                return f"{are} {not_}{link} {thing}"
            any_ = "any" if negated else "at least one"
            what = f"{self._role_or_one(rest[0])} {self._rest(there, beyond, condition)}".strip()
            return f"{are} {not_}{link} {any_} {what}"
        any_ = "no" if negated else "at least one"
        child = self.one(hop.target)
        clause = self._rest(hop.target, rest, condition)
        if hop.edge.name and self.needs_role(hop):
            # Two keys lead to this parent: say which of them is meant.
            verb = f"{are} the {self.role(hop.edge)} of {any_} {child}"
        else:
            verb = f"{have} {any_} {child}"
        return f"{verb} {clause}".strip()

    def _role_or_one(self, hop: Hop) -> str:
        return self.role(hop.edge) if self.needs_role(hop) else self.one(hop.target)

    def needs_role(self, hop: Hop) -> bool:
        """Whether several keys join the two tables, so that the role must be said.

        A table that refers to itself needs it too: its rows are on both sides.
        """
        if hop.edge.child == hop.edge.parent:
            return True
        pair = {hop.edge.child, hop.edge.parent}
        return sum({e.child, e.parent} == pair for e in self.live.edges) > 1

    def _rest(self, table: str, path: Path, condition: Condition | str | None) -> str:
        """The clause of one row further along a path."""
        if path:
            return self.relative(path, condition, many=False)
        if condition is None:
            return ""
        if isinstance(condition, str):
            # A name of the row itself: "at least one superhero named Blue Beetle".
            return f"that is {condition}" if condition.startswith("that ") else f"named {condition}"
        return self.whose([condition])
