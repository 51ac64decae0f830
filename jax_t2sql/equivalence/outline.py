"""What of a query matters for making rows that it tells apart: which tables meet in it, which
columns are compared with each other, and which with what literals.

A reading for the sake of search alone: whatever is missed or mistaken here costs chances, never
soundness. So nothing is refused; what sqlglot cannot parse has an empty outline.
"""

import sqlglot
from sqlglot import exp

from jax_t2sql.equivalence.atoms import (
    OPERATORS,
    PREDICATES,
    Atom,
    Outline,
    Ref,
    called,
    has_bare_columns,
    literal_of,
    picks_a_row,
    walk,
    walk_operand,
)
from jax_t2sql.equivalence.catalog import Catalog
from jax_t2sql.sql.schema import fold


def outline(statement: str, catalog: Catalog) -> Outline:
    """Reads a query."""
    reader = _Reader(catalog)
    try:
        tree = sqlglot.parse_one(statement, read="sqlite")
        reader.query(tree, None)
    except Exception:  # anybody's text in another's parser: no failure may stop us
        reader.outline.bare = True
    return reader.outline


def outline_of_check(condition: str, table: str, catalog: Catalog) -> Outline:
    """Reads a table's CHECK."""
    return outline(f'SELECT 1 FROM "{table}" WHERE {condition}', catalog)


# What a name in FROM stands for: an occurrence of a table, or the columns of a subquery.
_Source = int | dict[str, tuple[Ref, ...]]


class _Scope:
    """The names that one SELECT can use."""

    def __init__(self, outer: "_Scope | None") -> None:
        self.outer = outer
        self.sources: dict[str, _Source] = {}
        self.aliases: dict[str, exp.Expression] = {}
        self.tables: dict[str, dict[str, tuple[Ref, ...]]] = {}  # common tables

    def common(self, name: str) -> dict[str, tuple[Ref, ...]] | None:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.tables:
                return scope.tables[name]
            scope = scope.outer
        return None


class _Reader:
    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.outline = Outline()

    def query(self, node: exp.Expression, outer: _Scope | None) -> dict[str, tuple[Ref, ...]]:
        """Reads a query and everything in it; the columns that it gives, by folded name."""
        while isinstance(node, (exp.Subquery, exp.Paren)):
            node = node.this
        scope = _Scope(outer)
        if isinstance(node, exp.Query) and picks_a_row(node):
            self.outline.bare = True
        self._common_tables(node, scope)
        if isinstance(node, exp.SetOperation):
            left, right = self.query(node.left, scope), self.query(node.right, scope)
            if not isinstance(node, exp.Union):
                for mine, theirs in zip(left.values(), right.values(), strict=False):
                    self._pair(mine, theirs, "=")
            self._sizes(node)
            return {
                name: refs + more
                for (name, refs), more in zip(left.items(), right.values(), strict=False)
            }
        if not isinstance(node, exp.Select):
            return {}
        self._from(node, scope)
        self._sizes(node)
        self.outline.bare = self.outline.bare or has_bare_columns(node)
        given: dict[str, tuple[Ref, ...]] = {}
        for number, item in enumerate(node.expressions):
            if isinstance(item, exp.Star) or item.is_star:
                given.update(self._star(scope))
                continue
            if isinstance(item, exp.Alias):
                scope.aliases[fold(item.alias)] = item.this
            given[fold(item.alias_or_name) or f"#{number}"] = self._refs(item, scope)
        for key, part in node.args.items():
            if key not in ("with_", "with", "from_", "from", "joins"):
                for child in part if isinstance(part, list) else [part]:
                    if isinstance(child, exp.Expression):
                        self._expression(child, scope)
        for join in node.args.get("joins") or ():
            if join.args.get("on"):
                self._expression(join.args["on"], scope)
        return given

    def _common_tables(self, node: exp.Expression, scope: _Scope) -> None:
        clause = node.args.get("with_") or node.args.get("with")
        for common in clause.expressions if clause else ():
            scope.tables[fold(common.alias)] = {}  # a recursive one sees itself
            columns = self.query(common.this, scope)
            named = [fold(c.name) for c in common.args["alias"].args.get("columns") or ()]
            if named:
                columns = dict(zip(named, columns.values(), strict=False))
            scope.tables[fold(common.alias)] = columns

    def _from(self, node: exp.Select, scope: _Scope) -> None:
        clause = node.args.get("from_") or node.args.get("from")
        parts = [clause.this] if clause else []
        joins = list(node.args.get("joins") or ())
        for part in parts + [join.this for join in joins]:
            self._source(part, scope)
            joins += part.args.get("joins") or ()
        names = list(scope.sources)
        for i, join in enumerate(joins[: len(names) - 1]):
            using = [fold(c.name) for c in join.args.get("using") or ()]
            if fold(str(join.args.get("method") or "")) == "natural":
                using = self._shared(names[: i + 1], names[i + 1], scope)
            for column in using:
                mine = self._column(names[i + 1], column, scope) or ()
                for earlier in names[: i + 1]:
                    self._pair(self._column(earlier, column, scope) or (), mine, "=")

    def _source(self, part: exp.Expression, scope: _Scope) -> None:
        name = fold(part.alias_or_name)
        if isinstance(part, exp.Table) and isinstance(part.this, exp.Identifier):
            columns = scope.common(fold(part.name))
            if columns is not None:
                scope.sources[name] = columns
            elif self.catalog.table(part.name) is not None:
                scope.sources[name] = len(self.outline.tables)
                self.outline.tables.append(fold(part.name))
            return
        if isinstance(part, exp.Subquery):
            scope.sources[name or f"#{len(scope.sources)}"] = self.query(part.this, scope)

    def _shared(self, earlier: list[str], name: str, scope: _Scope) -> list[str]:
        def columns(of: str) -> set[str]:
            source = scope.sources[of]
            return set(self._places(source)) if isinstance(source, int) else set(source)

        return sorted(columns(name) & set().union(*map(columns, earlier)))

    def _places(self, occurrence: int) -> list[str]:
        table = self.catalog.table(self.outline.tables[occurrence])
        return [fold(column.name) for column in table.columns]

    def _star(self, scope: _Scope) -> dict[str, tuple[Ref, ...]]:
        given: dict[str, tuple[Ref, ...]] = {}
        for source in scope.sources.values():
            if isinstance(source, int):
                given.update({name: ((source, name),) for name in self._places(source)})
            else:
                given.update(source)
        return given

    def _column(self, source: str, name: str, scope: _Scope) -> tuple[Ref, ...] | None:
        """The columns behind a name in a source; None where it has no such name."""
        found = scope.sources.get(source)
        if isinstance(found, int):
            return ((found, name),) if name in self._places(found) else None
        return found.get(name) if found else None

    def _resolve(self, column: exp.Column, scope: _Scope | None) -> tuple[Ref, ...] | None:
        """What a column stands for; None where there is no such name."""
        name, of = fold(column.name), fold(column.table)
        while scope is not None:
            if of:
                if of in scope.sources:
                    return self._column(of, name, scope) or ()
            else:
                for source in scope.sources:
                    refs = self._column(source, name, scope)
                    if refs is not None:
                        return refs
                if name in scope.aliases:
                    named = scope.aliases.pop(name)  # an alias that names itself must end
                    refs = self._refs(named, scope)
                    scope.aliases[name] = named
                    return refs
            scope = scope.outer
        return None

    def _refs(self, node: exp.Expression, scope: _Scope) -> tuple[Ref, ...]:
        """Base columns anywhere in an expression, subqueries left out."""
        refs: list[Ref] = []
        for part in walk(node):
            if isinstance(part, exp.Column):
                refs += self._resolve(part, scope) or ()
        return tuple(dict.fromkeys(refs))

    def _expression(self, node: exp.Expression, scope: _Scope) -> None:
        for part in walk(node):
            if isinstance(part, (exp.Query, exp.Subquery)):
                if not isinstance(part.parent, PREDICATES):
                    self.query(part, scope)
            elif isinstance(part, PREDICATES):
                self._predicate(part, scope)
            elif isinstance(part, exp.Case) and part.this is not None:
                refs = self._refs(part.this, scope)
                values = [
                    v for v in (literal_of(i.this) for i in part.args["ifs"]) if v is not None
                ]
                self._atom(Atom("IN", refs, tuple(values)))

    def _predicate(self, node: exp.Expression, scope: _Scope) -> None:
        operator = OPERATORS[type(node)]
        sides: list[tuple[Ref, ...]] = []
        inner_refs: list[Ref] = []
        direct, inner, calls, counted = [], [], [], False
        for key, part in node.args.items():
            for child in part if isinstance(part, list) else [part]:
                if not isinstance(child, exp.Expression):
                    continue
                if isinstance(child, (exp.Query, exp.Subquery)):
                    given = self.query(child, scope)
                    sides.append(next(iter(given.values()), ()))
                    continue
                if key != "expressions":
                    sides.append(self._refs(child, scope))
                for piece, is_direct in walk_operand(child):
                    value = literal_of(piece)
                    if isinstance(piece, exp.Column):
                        resolved = self._resolve(piece, scope)
                        value = piece.name if resolved is None else None
                        inner_refs += resolved or ()
                    if value is not None:
                        (direct if is_direct else inner).append(value)
                    elif isinstance(piece, exp.Count):
                        counted = True
                    elif isinstance(piece, exp.Func):
                        calls.append(called(piece))
        sides = [side for side in sides if side]
        if len(sides) == 2:
            self._pair(sides[0], sides[1], "=" if operator in ("=", "IN") else operator)
        refs = tuple(dict.fromkeys(inner_refs))
        if direct or inner:
            # What is counted is not compared with the number.
            refs = () if counted else refs
            atom = Atom(operator, refs, tuple(direct), tuple(inner), tuple(calls), counted)
            self._atom(atom)

    def _atom(self, atom: Atom) -> None:
        self.outline.atoms.append(atom)
        if atom.counted or not atom.refs:  # without columns: a count by its alias
            self.outline.sizes += [v for v in atom.direct if isinstance(v, int)]

    def _pair(self, mine: tuple[Ref, ...], theirs: tuple[Ref, ...], operator: str) -> None:
        pairs = self.outline.equal if operator == "=" else self.outline.unequal
        pairs += [(a, b) for a in mine[:2] for b in theirs[:2] if a != b]

    def _sizes(self, node: exp.Expression) -> None:
        total = 0
        for key in ("limit", "offset"):
            clause = node.args.get(key)
            value = literal_of(clause.expression) if clause is not None else None
            total += value if isinstance(value, int) else 0
        if total:
            self.outline.sizes.append(total)
