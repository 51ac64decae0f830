"""Order, and which rows a LIMIT keeps."""

from jax_t2sql.equivalence.symbolic.comparing import collation_of
from jax_t2sql.equivalence.symbolic.context import Cells, Context, Row
from jax_t2sql.equivalence.symbolic.errors import Unsupported
from jax_t2sql.equivalence.symbolic.ir import Constant, Expr, Negate, Query, Sort
from jax_t2sql.equivalence.symbolic.opaque import collated
from jax_t2sql.equivalence.symbolic.terms import Term
from jax_t2sql.equivalence.symbolic.values import Val, identical, same
from jax_t2sql.equivalence.symbolic.walking import is_single_row


def number_of(expr: Expr | None) -> int | None:
    """The number of a LIMIT or OFFSET.

    Raises:
      Unsupported: it is no number that stands in the text.
    """
    if expr is None:
        return None
    if isinstance(expr, Negate) and isinstance(expr.operand, Constant):
        inner = number_of(expr.operand)
        return -inner
    if isinstance(expr, Constant) and isinstance(expr.value, int):
        return expr.value
    raise Unsupported("LIMIT or OFFSET that is no plain number")


def limited(ctx: Context, query: Query, rows: list[Row]) -> list[Row]:
    """The rows that LIMIT keeps.

    Of rows that tie, SQLite may keep any: a doubt, unless they show the same.

    Raises:
      Unsupported: the bound is too low for the LIMIT to cut anything, so that a proof would say
        nothing of it.
    """
    t = ctx.t
    if is_single_row(query) and not query.offset and number_of(query.limit) != 0:
        return rows
    limit, offset = number_of(query.limit), number_of(query.offset) or 0
    offset = max(offset, 0)
    if limit < 0:
        limit = None
    needed = offset + (limit or 0) + 1
    if needed > ctx.bound and limit != 0 and not query.implicit_limit:
        raise Unsupported(f"LIMIT: a proof that it cuts alike needs {needed} rows a table")
    ordering = Ordering(ctx, query)
    keys = [ordering.fold(row.keys) for row in rows]
    kept, ties = [], {}
    for i, row in enumerate(rows):
        before = []
        for j, other in enumerate(rows):
            if i == j:
                continue
            first = ordering.before(keys[j], keys[i])
            if j < i:
                ties[j, i] = ordering.tie(keys[j], keys[i])
                first = t.or_(first, ties[j, i])
            before.append(t.and_(other.present, first))
        place = t.count(before)
        inside = t.le(t.number(offset), place)
        if limit is not None:
            inside = t.and_(inside, t.lt(place, t.number(offset + limit)))
        kept.append(t.and_(row.present, inside))
        ctx.allow(0)
    for (j, i), tie in ties.items():
        cut = t.not_(t.eq(kept[i], kept[j]))
        apart = t.not_(identical_rows(ctx, rows[i].cells, rows[j].cells))
        ctx.doubt(rows[i].present, rows[j].present, tie, apart, cut)
    return [Row(keep, row.cells, row.keys) for keep, row in zip(kept, rows, strict=True)]


def identical_rows(ctx: Context, a: Cells, b: Cells) -> Term:
    return ctx.t.and_(*(identical(ctx.t, x, y) for x, y in zip(a, b, strict=True)))


class Ordering:
    """The ORDER BY of a query."""

    def __init__(self, ctx: Context, query: Query) -> None:
        self._ctx = ctx
        self._sorts: tuple[Sort, ...] = query.order
        self._collations = [collation_of(sort.key)[0] or "BINARY" for sort in query.order]

    def fold(self, keys: Cells) -> Cells:
        """Sort keys made ready to be compared."""
        pairs = zip(keys, self._collations, strict=True)
        return tuple(collated(self._ctx.t, key, collation) for key, collation in pairs)

    def before(self, a: Cells, b: Cells) -> Term:
        """Whether a row with keys `a` must come before one with keys `b`."""
        t = self._ctx.t
        result = t.false
        for sort, x, y in reversed(list(zip(self._sorts, a, b, strict=True))):
            result = t.or_(self._before(sort, x, y), t.and_(same(t, x, y), result))
        return result

    def tie(self, a: Cells, b: Cells) -> Term:
        """Whether the ORDER BY leaves open which of two rows comes first."""
        return self._ctx.t.and_(*(same(self._ctx.t, x, y) for x, y in zip(a, b, strict=True)))

    def _before(self, sort: Sort, x: Val, y: Val) -> Term:
        t = self._ctx.t
        less = t.lt(y.key, x.key) if sort.descending else t.lt(x.key, y.key)
        both = t.and_(t.not_(x.null), t.not_(y.null), less)
        if sort.nulls_first:
            return t.or_(both, t.and_(x.null, t.not_(y.null)))
        return t.or_(both, t.and_(t.not_(x.null), y.null))
