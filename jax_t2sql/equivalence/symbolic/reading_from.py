"""From sqlglot's FROM to sources whose join conditions are spelt out."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from jax_t2sql.equivalence.symbolic import ir
from jax_t2sql.equivalence.symbolic.comparing import MIXED
from jax_t2sql.equivalence.symbolic.errors import Unsupported
from jax_t2sql.equivalence.symbolic.parsing import allow_only
from jax_t2sql.equivalence.symbolic.scope import Scope, Visible, column_of, unique_names
from jax_t2sql.equivalence.symbolic.walking import columns, has_pattern
from jax_t2sql.sql.schema import fold

if TYPE_CHECKING:
    from jax_t2sql.equivalence.symbolic.reading import Reader

Ctes = dict[str, tuple[str, ir.Query]]
"""Common tables in scope, by folded name: their names in print, and what they hold."""


def read_from(
    reader: "Reader", node: exp.Select, scope: Scope, ctes: Ctes
) -> tuple[ir.Source, ...]:
    """The sources of a SELECT, which become visible in its scope."""
    clause = node.args.get("from_")
    if clause is None:
        return ()
    pending: list[tuple[exp.Expression, exp.Join | None]] = [(clause.this, None)]
    pending += [(join.this, join) for join in node.args.get("joins") or []]
    flat: list[tuple[exp.Expression, exp.Join | None]] = []
    for item, join in pending:
        flat.append((item, join))
        flat += [(inner.this, inner) for inner in item.args.get("joins") or []]
    outer = scope.parent
    for item, join in flat:
        scope.visible.append(_source(reader, item, join, outer, ctes))
    result = []
    for seen, (_, join) in zip(scope.visible, flat, strict=True):
        source = seen.source
        if join is not None:
            source = _with_condition(reader, source, join, scope, ctes)
            ids = {v.source.id for v in scope.visible if v.source.id <= source.id}
            later = {v.source.id for v in scope.visible} - ids
            if source.condition and any(c.source in later for c in columns(source.condition)):
                raise Unsupported("ON that reads a table which is joined later")
        result.append(source)
    for seen, source in zip(scope.visible, result, strict=True):
        seen.source = source
    return tuple(result)


def _source(
    reader: "Reader", node: exp.Expression, join: exp.Join | None, outer: Scope | None, ctes: Ctes
) -> Visible:
    kind = "INNER" if join is None else _join_kind(join)
    alias = node.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        raise Unsupported("column names after a table's alias")
    if isinstance(node, exp.Subquery):
        allow_only(node, {"this", "alias", "joins"}, "a subquery in FROM")
        if isinstance(node.this, exp.Table):
            raise Unsupported("parentheses in FROM")
        query = reader.query(node.this, outer, ctes)
        name, table, cte = node.alias, None, None
    elif isinstance(node, exp.Table):
        allow_only(node, {"this", "alias", "joins"}, "a table")
        name, table, cte, query = node.alias_or_name, None, None, None
        if fold(node.name) in ctes:
            cte, query = ctes[fold(node.name)]
        else:
            found = reader.catalog.table(node.name)
            if found is None:
                raise Unsupported(f"{node.name}, which is no table (a view, perhaps)")
            table = found.name
    else:
        raise Unsupported(f"{type(node).__name__.upper()} in FROM")
    if query is not None:
        _refuse_half_real(query)
        outputs = unique_names(list(query.outputs))
    else:
        outputs = tuple(ir.Output(c.name, c.affinity, c.collation) for c in found.columns)
    reader.sources += 1
    source = ir.Source(reader.sources, table, query, cte, outputs, kind)
    return Visible(fold(name or ""), source)


def _refuse_half_real(query: ir.Query) -> None:
    """Refuses a set operation in FROM that gives a REAL column other parts that are not REAL.

    SQLite reads such a column as REAL, or does not, by rules that changed with its versions.
    """
    for place, output in enumerate(query.outputs):
        affinities = set(_affinities(query, place))
        if output.affinity == MIXED and "REAL" in affinities:
            raise Unsupported("a set operation in FROM of REAL and other columns")


def _affinities(query: ir.Query, place: int) -> Iterator[str | None]:
    if isinstance(query, ir.Compound):
        yield from _affinities(query.left, place)
        yield from _affinities(query.right, place)
    else:
        yield query.outputs[place].affinity


def _with_condition(
    reader: "Reader", source: ir.Source, join: exp.Join, scope: Scope, ctes: Ctes
) -> ir.Source:
    before = [seen for seen in scope.visible if seen.source.id < source.id]
    me = next(seen for seen in scope.visible if seen.source.id == source.id)
    if fold(join.method or "") == "natural":
        names = [
            output.name
            for output in source.columns
            if output.name and any(_find(seen, output.name) is not None for seen in before)
        ]
    elif join.args.get("using"):
        names = [name.name for name in join.args["using"]]
    elif join.args.get("on") is not None:
        condition = reader.expression(join.args["on"], scope, ctes)
        if source.join == "LEFT" and has_pattern(condition):
            # SQLite 3.40 loses the rows without a match where it looks LIKE 'a%' up by a key.
            raise Unsupported("LIKE or GLOB in the ON of a LEFT JOIN")
        return replace(source, condition=condition)
    else:
        return source
    condition: ir.Expr | None = None
    for name in names:
        lefts = [(seen, i) for seen in before if (i := _find(seen, name)) is not None]
        right = _find(me, name)
        if len(lefts) != 1 or right is None:
            raise Unsupported(f"USING or NATURAL on {name}, which several tables have")
        left = column_of(lefts[0][0].source, lefts[0][1])
        equal = ir.Compare("=", left, column_of(source, right))
        condition = equal if condition is None else ir.Connect("AND", condition, equal)
        me.hidden |= {right}
    return replace(source, condition=condition)


def _join_kind(join: exp.Join) -> str:
    allow_only(join, {"this", "side", "kind", "on", "using", "method"}, "JOIN")
    side, kind, method = (fold(part or "") for part in (join.side, join.kind, join.method))
    if side not in ("", "left") or kind not in ("", "inner", "outer", "cross"):
        raise Unsupported(f"{side or kind} join".upper())
    if method not in ("", "natural"):
        raise Unsupported(f"{method} join".upper())
    return "LEFT" if side else "CROSS" if kind == "cross" else "INNER"


def _find(seen: Visible, name: str) -> int | None:
    for i, output in enumerate(seen.source.columns):
        if fold(output.name) == fold(name) and i not in seen.hidden:
            return i
    return None
