"""Which column a name means: SQLite's rules of resolution.

The innermost FROM counts first, then names given in the select list, then the query around it; a
double-quoted name that means no column is a text (https://www.sqlite.org/quirks.html#dblquote).
What is decided here is checked against SQLite's own reading by `confirming.py`.
"""

from dataclasses import dataclass, field

from jax_t2sql.equivalence.symbolic.errors import Unsupported
from jax_t2sql.equivalence.symbolic.ir import Column, Constant, Expr, Output, Source
from jax_t2sql.sql.schema import fold

ROW_IDS = ("rowid", "oid", "_rowid_")


@dataclass
class Visible:
    """A source in FROM: the name it goes by, and the columns that USING has merged away."""

    name: str
    source: Source
    hidden: frozenset[int] = frozenset()


@dataclass
class Scope:
    """What names can mean at one place.

    Attributes:
      parent: the scope around, for correlated subqueries.
      visible: the sources, in order.
      aliases: names given in the select list, folded, and what they stand for; may be used where
        `with_aliases` is set.
    """

    parent: "Scope | None" = None
    visible: list[Visible] = field(default_factory=list)
    aliases: dict[str, Expr] = field(default_factory=dict)
    with_aliases: bool = False

    def resolve(self, table: str | None, name: str, *, quoted: bool) -> Expr:
        """What a name means.

        Raises:
          Unsupported: nothing, several things, or a row id.
        """
        scope: Scope | None = self
        while scope is not None:
            found = scope._among_sources(table, name)
            if found is not None:
                return found
            if table is None and scope.with_aliases and fold(name) in scope.aliases:
                return scope.aliases[fold(name)]
            scope = scope.parent
        if table is None and quoted:
            return Constant(name)
        if fold(name) in ROW_IDS:
            raise Unsupported("the row id")
        raise Unsupported(f"a name that means no column: {name}")

    def _among_sources(self, table: str | None, name: str) -> Column | None:
        matches = [
            column_of(seen.source, i)
            for seen in self.visible
            if table is None or seen.name == fold(table)
            for i, output in enumerate(seen.source.columns)
            if fold(output.name) == fold(name) and not (table is None and i in seen.hidden)
        ]
        if len(matches) > 1:
            raise Unsupported(f"a name that may mean several columns: {name}")
        return matches[0] if matches else None


def column_of(source: Source, index: int) -> Column:
    """The column of a source at a place."""
    output = source.columns[index]
    return Column(
        source.id, index, output.name, output.affinity, output.collation, source.table is not None
    )


def unique_names(outputs: list[Output]) -> tuple[Output, ...]:
    """Result columns of a subquery; of several with one name only the first is found by it."""
    seen: set[str] = set()
    result = []
    for output in outputs:
        name = "" if fold(output.name) in seen else output.name
        seen.add(fold(output.name))
        result.append(Output(name, output.affinity, output.collation))
    return tuple(result)
