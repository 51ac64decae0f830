"""When two results differ under a grading mode, or are left to chance."""

from collections import Counter

from jax_t2sql.equivalence.symbolic.context import Context, Row
from jax_t2sql.equivalence.symbolic.errors import Unsupported
from jax_t2sql.equivalence.symbolic.ir import Query
from jax_t2sql.equivalence.symbolic.limits import Ordering
from jax_t2sql.equivalence.symbolic.terms import Term
from jax_t2sql.equivalence.symbolic.values import same
from jax_t2sql.sql.modes import Mode


def difference(
    ctx: Context, gold: tuple[Query, list[Row]], pred: tuple[Query, list[Row]], mode: Mode
) -> Term:
    """The condition under which the two results differ.

    Raises:
      Unsupported: the mode asks for something else than equality, or the widths differ.
    """
    (gold_query, gold_rows), (pred_query, pred_rows) = gold, pred
    if mode.kind == "subset":
        raise Unsupported("the grading mode subset, which is no equality")
    if len(gold_query.outputs) != len(pred_query.outputs):
        raise Unsupported("results of different widths")
    gold_rows, pred_rows = _without_shared(gold_rows, pred_rows, mode)
    ctx.allow(max(len(gold_rows), len(pred_rows)))
    if mode.kind in ("set", "bird"):
        return _set_difference(ctx, gold, pred, gold_rows, pred_rows)
    if mode.kind == "multiset":
        cells = [[(row.present, row.cells) for row in rows] for rows in (gold_rows, pred_rows)]
        return _bag_difference(ctx, *cells)
    return _list_difference(ctx, gold, pred)


Identity = tuple[int, ...]


def _identity(row: Row) -> Identity:
    return (row.present.id, *(part for v in row.cells for part in (v.null.id, v.key.id)))


def _without_shared(gold: list[Row], pred: list[Row], mode: Mode) -> tuple[list[Row], list[Row]]:
    """The rows of each that the other does not have term for term.

    Under a set a row may be shared by several; under a multiset one cancels one.
    """
    if mode.kind == "list":
        return gold, pred
    result = []
    for rows, others in ((gold, pred), (pred, gold)):
        left = Counter(map(_identity, others))
        kept = []
        for row in rows:
            identity = _identity(row)
            if left[identity]:
                left[identity] -= mode.kind == "multiset"
            else:
                kept.append(row)
        result.append(kept)
    return result[0], result[1]


def _equal(ctx: Context, a, b) -> Term:
    return ctx.t.and_(*(same(ctx.t, x, y) for x, y in zip(a, b, strict=True)))


def _set_difference(ctx: Context, gold, pred, gold_rows, pred_rows) -> Term:
    t = ctx.t
    lonely = []
    for rows, others in ((gold_rows, pred[1]), (pred_rows, gold[1])):
        for row in rows:
            found = (t.and_(o.present, _equal(ctx, row.cells, o.cells)) for o in others)
            lonely.append(t.and_(row.present, t.not_(t.or_(*found))))
        ctx.allow(0)
    return t.or_(*lonely)


def _bag_difference(ctx: Context, gold: list, pred: list) -> Term:
    """That some row of either comes more often in one."""
    t = ctx.t
    uneven = []
    for i, (present, cells) in enumerate([*gold, *pred]):
        counts = []
        for rows in (gold, pred):
            alike = (t.and_(other, _equal(ctx, cells, o)) for other, o in rows)
            counts.append(t.count(alike))
        if i >= len(gold) and not gold:
            uneven.append(present)
        else:
            uneven.append(t.and_(present, t.not_(t.eq(*counts))))
        ctx.allow(0)
    return t.or_(*uneven)


def _list_difference(ctx: Context, gold, pred) -> Term:
    """That the rows with their places are not the same, or that rows which tie are told apart."""
    t = ctx.t
    sides = []
    for query, rows in (gold, pred):
        ordering = Ordering(ctx, query)
        keys = [ordering.fold(row.keys) for row in rows]
        placed = []
        for i, row in enumerate(rows):
            before = []
            for j, other in enumerate(rows):
                if i == j:
                    continue
                before.append(t.and_(other.present, ordering.before(keys[j], keys[i])))
                if j < i:
                    tie = ordering.tie(keys[j], keys[i])
                    apart = t.not_(_equal(ctx, row.cells, other.cells))
                    ctx.doubt(row.present, other.present, tie, apart)
            placed.append((row, t.count(before)))
            ctx.allow(0)
        sides.append(placed)
    uneven = []
    for placed in sides:
        for row, place in placed:
            counts = []
            for rows in sides:
                alike = (
                    t.and_(o.present, t.eq(p, place), _equal(ctx, row.cells, o.cells))
                    for o, p in rows
                )
                counts.append(t.count(alike))
            uneven.append(t.and_(row.present, t.not_(t.eq(*counts))))
        ctx.allow(0)
    return t.or_(*uneven)
