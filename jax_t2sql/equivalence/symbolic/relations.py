"""The possible rows of a query."""

from collections.abc import Iterable

from jax_t2sql.equivalence.symbolic import ir
from jax_t2sql.equivalence.symbolic.aggregates import differ
from jax_t2sql.equivalence.symbolic.comparing import collation_of
from jax_t2sql.equivalence.symbolic.context import Cells, Context, Env, Group, Row
from jax_t2sql.equivalence.symbolic.errors import Unsupported
from jax_t2sql.equivalence.symbolic.expressions import truth, value
from jax_t2sql.equivalence.symbolic.limits import limited
from jax_t2sql.equivalence.symbolic.opaque import collated
from jax_t2sql.equivalence.symbolic.terms import Term
from jax_t2sql.equivalence.symbolic.values import Val, choose, constant, same
from jax_t2sql.equivalence.symbolic.walking import has_aggregate, parts, query_columns, subquery
from jax_t2sql.sql.schema import fold


def rows_of(ctx: Context, query: ir.Query, env: Env) -> list[Row]:
    """The possible rows of a query, in an order that means nothing; `Row.keys` hold the sort keys.

    Raises:
      Unsupported: it holds something that is not modelled.
    """
    # By identity: the statement's tree outlives the evaluation, and hashing a tree takes long.
    if id(query) not in ctx.reads:
        ctx.reads[id(query)] = frozenset(column.source for column in query_columns(query))
    outside = sorted(source for source in ctx.reads[id(query)] if source in env.cells)
    key = (id(query), *(
        (source, *((v.null.id, v.key.id, v.real.id) for v in env.cells[source]))
        for source in outside
    ))  # fmt: skip
    if key not in ctx.memo:
        # Evaluated as if the outer row were there; its doubts count only where it is.
        start = len(ctx.doubts)
        rows = _evaluate(ctx, query, Env(env.cells, ctx.t.true))
        ctx.memo[key] = rows, ctx.t.or_(*ctx.doubts[start:])
        del ctx.doubts[start:]
    rows, doubt = ctx.memo[key]
    ctx.doubt(env.here, doubt)
    return rows


def _evaluate(ctx: Context, query: ir.Query, env: Env) -> list[Row]:
    rows = (
        _compound(ctx, query, env) if isinstance(query, ir.Compound) else _select(ctx, query, env)
    )
    rows = [row for row in rows if row.present is not ctx.t.false]
    ctx.allow(len(rows))
    if query.limit is not None:
        rows = limited(ctx, query, rows)
    return rows


def _select(ctx: Context, query: ir.Select, env: Env) -> list[Row]:
    t = ctx.t
    envs = _joined(ctx, query.sources, env)
    if query.where is not None:
        envs = [Env(e.cells, t.and_(e.here, truth(ctx, query.where, e).true)) for e in envs]
    envs = [e for e in envs if e.here is not t.false]
    # The same combinations in the same order, however the joins are written.
    envs.sort(key=lambda e: e.here.id)
    shown = [*query.items, *(sort.key for sort in query.order)]
    if query.group or query.having is not None or any(map(has_aggregate, shown)):
        envs = _grouped(ctx, query, envs, env)
    rows = [
        Row(
            e.here,
            tuple(value(ctx, item, e) for item in query.items),
            tuple(value(ctx, sort.key, e) for sort in query.order),
        )
        for e in envs
    ]
    if query.distinct:
        if any(sort.key not in query.items for sort in query.order):
            raise Unsupported("DISTINCT ordered by what is not in the result")
        rows = distinct(ctx, rows, [collation_of(item)[0] or "BINARY" for item in query.items])
    return rows


def _joined(ctx: Context, sources: Iterable[ir.Source], env: Env) -> list[Env]:
    t = ctx.t
    envs = [Env(env.cells, env.here)]
    for source in sources:
        rows = _source_rows(ctx, source, env)
        ctx.allow(len(envs) * len(rows))
        nothing = tuple(constant(t, None) for _ in source.columns)
        joined = []
        for left in envs:
            matches = []
            for row in rows:
                here = t.and_(left.here, row.present)
                both = Env({**left.cells, source.id: row.cells}, here)
                if source.condition is not None and here is not t.false:
                    here = t.and_(here, truth(ctx, source.condition, both).true)
                if here is not t.false:
                    joined.append(Env(both.cells, here))
                    matches.append(here)
            if source.join == "LEFT":
                alone = t.and_(left.here, t.not_(t.or_(*matches)))
                joined.append(Env({**left.cells, source.id: nothing}, alone))
        envs = joined
    return envs


def _source_rows(ctx: Context, source: ir.Source, env: Env) -> list[Row]:
    if source.query is not None:
        return rows_of(ctx, source.query, Env(env.cells, env.here))
    return ctx.tables[fold(source.table)]


def _grouped(ctx: Context, query: ir.Select, envs: list[Env], outer: Env) -> list[Env]:
    """An environment for each possible group: its first row's, with the group to run over."""
    t = ctx.t
    shown = [*query.items, *(s.key for s in query.order), *filter(None, [query.having])]
    if not query.group:
        groups = [_whole(ctx, query, envs, outer, shown)]
    else:
        groups = _by_key(ctx, query, envs, shown)
    if query.having is not None:
        groups = [
            Env(g.cells, t.and_(g.here, truth(ctx, query.having, g).true), g.group) for g in groups
        ]
    return [g for g in groups if g.here is not t.false]


def _whole(
    ctx: Context, query: ir.Select, envs: list[Env], outer: Env, shown: list[ir.Expr]
) -> Env:
    """All rows as one group, which is there even if no row is."""
    t = ctx.t
    nothing = constant(t, None)
    cells = dict(outer.cells)
    for source in query.sources:
        cells[source.id] = tuple(nothing for _ in source.columns)
    for column in bare_columns(query, shown):
        mine = list(cells[column.source])
        for i in range(len(envs) - 1, -1, -1):
            value_here = envs[i].cells[column.source][column.index]
            for other in envs[i + 1 :]:
                apart = _told_apart(ctx, value_here, other.cells[column.source][column.index])
                ctx.doubt(envs[i].here, other.here, apart)
            mine[column.index] = choose(t, envs[i].here, value_here, mine[column.index])
        cells[column.source] = tuple(mine)
    return Env(cells, outer.here, Group(tuple((e.here, e) for e in envs)))


def _by_key(ctx: Context, query: ir.Select, envs: list[Env], shown: list[ir.Expr]) -> list[Env]:
    t = ctx.t
    collations = [collation_of(key)[0] or "BINARY" for key in query.group]
    keys = [tuple(value(ctx, key, e) for key in query.group) for e in envs]
    folded = [_collated(ctx, cells, collations) for cells in keys]
    bare = bare_columns(query, shown)
    ctx.allow(0)
    equal: dict[tuple[int, int], Term] = {}
    groups = []
    for i, first in enumerate(envs):
        members: list[tuple[Term, Env]] = []
        earlier = []
        for j, other in enumerate(envs):
            if i == j:
                members.append((first.here, first))
                continue
            pair = (min(i, j), max(i, j))
            if pair not in equal:
                equal[pair] = _same_rows(ctx, folded[pair[0]], folded[pair[1]])
            together = t.and_(other.here, equal[pair])
            if together is t.false:
                continue
            if j < i:
                earlier.append(together)
                continue
            members.append((together, other))
            if j > i:
                for a, b, collation in zip(keys[i], keys[j], collations, strict=True):
                    ctx.doubt(first.here, together, differ(t, a, b, collation))
                for column in bare:
                    a, b = (e.cells[column.source][column.index] for e in (first, other))
                    ctx.doubt(first.here, together, _told_apart(ctx, a, b))
        here = t.and_(first.here, t.not_(t.or_(*earlier)))
        if here is not t.false:
            groups.append(Env(first.cells, here, Group(tuple(members))))
        ctx.allow(len(groups))
    return groups


def bare_columns(query: ir.Select, shown: list[ir.Expr]) -> set[ir.Column]:
    """Columns of the query's own FROM that are read outside aggregates and are no group keys."""
    own = {source.id for source in query.sources}
    found: set[ir.Column] = set()

    def look(expr: ir.Expr) -> None:
        if isinstance(expr, ir.Aggregate) or expr in query.group:
            return
        if isinstance(expr, ir.Column):
            found.add(expr)
        inner = subquery(expr)
        if inner is not None:
            found.update(query_columns(inner))
        for part in parts(expr):
            look(part)

    for expr in shown:
        look(expr)
    keys = {key for key in query.group if isinstance(key, ir.Column)}
    return {column for column in found if column.source in own} - keys


def _told_apart(ctx: Context, a: Val, b: Val) -> Term:
    t = ctx.t
    return t.or_(t.not_(same(t, a, b)), differ(t, a, b, "BINARY"))


def _collated(ctx: Context, cells: Cells, collations: list[str]) -> Cells:
    return tuple(collated(ctx.t, v, c) for v, c in zip(cells, collations, strict=True))


def _same_rows(ctx: Context, a: Cells, b: Cells) -> Term:
    return ctx.t.and_(*(same(ctx.t, x, y) for x, y in zip(a, b, strict=True)))


def distinct(ctx: Context, rows: list[Row], collations: list[str]) -> list[Row]:
    """The rows without those that repeat an earlier one."""
    t = ctx.t
    folded = [_collated(ctx, row.cells, collations) for row in rows]
    result = []
    for i, row in enumerate(rows):
        earlier = []
        for j in range(i):
            equal = t.and_(rows[j].present, _same_rows(ctx, folded[j], folded[i]))
            if equal is t.false:
                continue
            earlier.append(equal)
            for a, b, collation in zip(rows[j].cells, row.cells, collations, strict=True):
                ctx.doubt(row.present, equal, differ(t, a, b, collation))
        present = t.and_(row.present, t.not_(t.or_(*earlier)))
        result.append(Row(present, row.cells, row.keys))
        if i % 64 == 0:
            ctx.allow(0)
    return result


def _compound(ctx: Context, query: ir.Compound, env: Env) -> list[Row]:
    t = ctx.t
    left, right = (
        rows_of(ctx, side, Env(env.cells, env.here)) for side in (query.left, query.right)
    )
    if query.op == "UNION ALL":
        rows = [*left, *right]
    else:
        collations = [output.collation for output in query.outputs]
        if query.op == "UNION":
            rows = distinct(ctx, [*left, *right], collations)
        else:
            # What is kept is the left side's row, whatever kind of number the right one has.
            rows = []
            for row in distinct(ctx, left, collations):
                cells = _collated(ctx, row.cells, collations)
                found = []
                for other in right:
                    equal = _same_rows(ctx, cells, _collated(ctx, other.cells, collations))
                    found.append(t.and_(other.present, equal))
                inside = t.or_(*found)
                keep = inside if query.op == "INTERSECT" else t.not_(inside)
                rows.append(Row(t.and_(row.present, keep), row.cells))
    keys = [sort.position - 1 for sort in query.order]
    return [Row(row.present, row.cells, tuple(row.cells[k] for k in keys)) for row in rows]
