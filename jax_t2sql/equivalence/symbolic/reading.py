"""From sqlglot's tree to a query with all names resolved.

Whatever is not known to mean what it seems to mean is refused, with the name of the construct.
"""

from dataclasses import replace

from sqlglot import exp

from jax_t2sql.equivalence.catalog import Catalog
from jax_t2sql.equivalence.symbolic import ir
from jax_t2sql.equivalence.symbolic.comparing import MIXED, affinity_of, collation_of
from jax_t2sql.equivalence.symbolic.errors import Unsupported
from jax_t2sql.equivalence.symbolic.parsing import allow_only, parse
from jax_t2sql.equivalence.symbolic.reading_expressions import collation_name, read_expression
from jax_t2sql.equivalence.symbolic.reading_from import Ctes, read_from
from jax_t2sql.equivalence.symbolic.scope import Scope, column_of
from jax_t2sql.sql.schema import fold

_OPS = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}
_SELECT_PARTS = frozenset(
    "with_ expressions from_ joins where group having order limit offset distinct".split()
)


def read(sql: str, catalog: Catalog) -> ir.Query:
    """A statement's query.

    Raises:
      Unsupported: it holds something that is not modelled.
    """
    try:
        return Reader(catalog).query(parse(sql), None, {})
    except RecursionError:
        raise Unsupported("a statement nested too deeply") from None


class Reader:
    """Reads one statement; numbers its sources."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.sources = 0

    def query(self, node: exp.Expression, parent: Scope | None, ctes: Ctes) -> ir.Query:
        """A SELECT or a set operation, parenthesised or not."""
        while isinstance(node, exp.Subquery | exp.Paren):
            allow_only(node, {"this"}, "a subquery")
            node = node.this
        if isinstance(node, exp.Select):
            return self._select(node, parent, ctes)
        if type(node) in _OPS:
            return self._compound(node, parent, ctes)
        raise Unsupported(f"{type(node).__name__.upper()} as a query")

    def _ctes(
        self, node: exp.Expression, parent: Scope | None, ctes: Ctes
    ) -> tuple[Ctes, tuple[tuple[str, ir.Query], ...]]:
        clause = node.args.get("with_")
        if clause is None:
            return ctes, ()
        ctes, own = dict(ctes), []
        names = {fold(cte.alias) for cte in clause.expressions}
        for cte in clause.expressions:
            allow_only(cte, {"this", "alias"}, "WITH")
            # A name that is defined here but not read yet is this table itself or a later one.
            if any(fold(t.name) in names for t in cte.this.find_all(exp.Table)):
                raise Unsupported("a recursive common table expression")
            names.discard(fold(cte.alias))
            body = self.query(cte.this, parent, ctes)
            given = cte.args["alias"].args.get("columns") or []
            if given:
                if len(given) != len(body.outputs):
                    raise Unsupported("a common table with a wrong number of column names")
                outputs = [
                    ir.Output(name.name, o.affinity, o.collation)
                    for name, o in zip(given, body.outputs, strict=True)
                ]
                body = replace(body, outputs=tuple(outputs))
            name = f"c{len(ctes)}_{len(own)}_{self.sources}"
            ctes[fold(cte.alias)] = (name, body)
            own.append((name, body))
        return ctes, tuple(own)

    def _select(self, node: exp.Select, parent: Scope | None, ctes: Ctes) -> ir.Select:
        allow_only(node, _SELECT_PARTS, "SELECT")
        ctes, own_ctes = self._ctes(node, parent, ctes)
        scope = Scope(parent)
        sources = read_from(self, node, scope, ctes)
        items, outputs = self._items(node, scope, ctes)
        aliases: dict[str, ir.Expr] = {}
        for item, output, named in zip(items, outputs, self._named(node, items), strict=True):
            if named:
                aliases.setdefault(fold(output.name), item)
        scope.aliases, scope.with_aliases = aliases, True
        group = []
        for key in getattr(node.args.get("group"), "expressions", []):
            group.append(self._group_key(key, scope, ctes, items))
        if group:
            allow_only(node.args["group"], {"expressions"}, "GROUP BY")
        where, having = (
            self.expression(node.args[part].this, scope, ctes) if node.args.get(part) else None
            for part in ("where", "having")
        )
        distinct = node.args.get("distinct")
        if distinct is not None:
            allow_only(distinct, set(), "DISTINCT")
        limit, offset = self._limits(node, scope, ctes)
        order = tuple(self._sort(s, scope, ctes, items, aliases) for s in _ordered(node))
        return ir.Select(
            sources=sources, items=items, outputs=outputs, where=where, group=tuple(group),
            having=having, distinct=distinct is not None, order=order, limit=limit, offset=offset,
            ctes=own_ctes,
        )  # fmt: skip

    def expression(self, node: exp.Expression, scope: Scope, ctes: Ctes) -> ir.Expr:
        """An expression in a scope."""
        return read_expression(node, scope, lambda inner: self.query(inner, scope, ctes))

    def _limits(self, node, scope: Scope, ctes: Ctes) -> tuple[ir.Expr | None, ir.Expr | None]:
        limit, offset = node.args.get("limit"), node.args.get("offset")
        if limit is not None and not isinstance(limit, exp.Limit):
            raise Unsupported("FETCH")
        return tuple(
            None if part is None else self.expression(part.expression, Scope(), ctes)
            for part in (limit, offset)
        )

    def _items(
        self, node: exp.Select, scope: Scope, ctes: Ctes
    ) -> tuple[tuple[ir.Expr, ...], tuple[ir.Output, ...]]:
        items: list[ir.Expr] = []
        names: list[str] = []
        for item in node.expressions:
            star = isinstance(item, exp.Star)
            if star or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                if item.args.get("except_") or item.args.get("replace"):
                    raise Unsupported("* with exceptions")
                found = [seen for seen in scope.visible if star or seen.name == fold(item.table)]
                if not found or (not star and len(found) > 1):
                    raise Unsupported("* of no table or of several")
                for seen in found:
                    for i, output in enumerate(seen.source.columns):
                        if not (star and i in seen.hidden):
                            items.append(column_of(seen.source, i))
                            names.append(output.name)
                continue
            named = isinstance(item, exp.Alias)
            expr = self.expression(item.this if named else item, scope, ctes)
            items.append(expr)
            names.append(item.alias if named else expr.name if isinstance(expr, ir.Column) else "")
        outputs = tuple(_output(n, e) for n, e in zip(names, items, strict=True))
        return tuple(items), outputs

    def _named(self, node: exp.Select, items: tuple[ir.Expr, ...]) -> list[bool]:
        """Which items have a name given by AS; none where a * makes the places shift."""
        if len(node.expressions) != len(items):
            return [False] * len(items)
        return [isinstance(item, exp.Alias) for item in node.expressions]

    def _group_key(
        self, node: exp.Expression, scope: Scope, ctes: Ctes, items: tuple[ir.Expr, ...]
    ) -> ir.Expr:
        if isinstance(node, exp.Literal) and not node.is_string:
            return items[_place(node, items)]
        return self.expression(node, scope, ctes)

    def _sort(
        self, node: exp.Ordered, scope: Scope, ctes: Ctes, items: tuple[ir.Expr, ...], aliases
    ) -> ir.Sort:
        key, collation = _without_collation(node.this)
        position = None
        if isinstance(key, exp.Literal) and not key.is_string:
            position = _place(key, items) + 1
        elif _is_bare(key) and fold(key.name) in aliases:
            position = items.index(aliases[fold(key.name)]) + 1
        expr = self.expression(key, scope, ctes) if position is None else items[position - 1]
        if collation:
            expr = ir.Collate(expr, collation)
        descending, nulls_first = _direction(node)
        return ir.Sort(expr, descending, nulls_first, position)

    def _compound(self, node: exp.SetOperation, parent: Scope | None, ctes: Ctes) -> ir.Compound:
        allow_only(
            node,
            {"this", "expression", "distinct", "with_", "order", "limit", "offset"},
            "a set operation",
        )
        ctes, own_ctes = self._ctes(node, parent, ctes)
        if any(isinstance(side, exp.Subquery) for side in (node.this, node.expression)):
            raise Unsupported("parentheses in a set operation")
        left, right = (self.query(n, parent, ctes) for n in (node.this, node.expression))
        if isinstance(right, ir.Compound):
            raise Unsupported("parentheses in a set operation")
        if len(left.outputs) != len(right.outputs):
            raise Unsupported("a set operation on different numbers of columns")
        op = _OPS[type(node)]
        if op == "UNION" and not node.args.get("distinct"):
            op = "UNION ALL"
        elif not node.args.get("distinct"):
            raise Unsupported(f"{op} ALL")
        outputs = []
        for a, b in zip(left.outputs, right.outputs, strict=True):
            if a.collation != "BINARY" or b.collation != "BINARY":
                raise Unsupported("a set operation on columns with a collation")
            outputs.append(replace(a, affinity=a.affinity if a.affinity == b.affinity else MIXED))
        order = []
        for ordered in _ordered(node):
            key, collation = _without_collation(ordered.this)
            if collation:
                raise Unsupported("COLLATE in the ORDER BY of a set operation")
            places = [i for i, o in enumerate(outputs) if _is_bare(key) and _named_so(o, key)]
            if isinstance(key, exp.Literal) and not key.is_string:
                places = [_place(key, tuple(outputs))]
            if not places:
                raise Unsupported("a set operation ordered by an expression")
            order.append(ir.Sort(ir.Constant(None), *_direction(ordered), places[0] + 1))
        limit, offset = self._limits(node, Scope(), ctes)
        return ir.Compound(op, left, right, tuple(outputs), tuple(order), limit, offset, own_ctes)


def _ordered(node: exp.Expression) -> list[exp.Ordered]:
    order = node.args.get("order")
    if order is None:
        return []
    allow_only(order, {"expressions"}, "ORDER BY")
    return order.expressions


def _direction(node: exp.Ordered) -> tuple[bool, bool]:
    """Whether descending and whether NULLs come first, which they do in SQLite when ascending."""
    allow_only(node, {"this", "desc", "nulls_first"}, "ORDER BY")
    return bool(node.args.get("desc")), bool(node.args.get("nulls_first"))


def _without_collation(node: exp.Expression) -> tuple[exp.Expression, str | None]:
    if isinstance(node, exp.Collate):
        return node.this, collation_name(node)
    return node, None


def _is_bare(node: exp.Expression) -> bool:
    return isinstance(node, exp.Column) and not node.table


def _named_so(output: ir.Output, node: exp.Column) -> bool:
    return fold(output.name) == fold(node.name)


def _place(node: exp.Literal, items: tuple) -> int:
    text = node.this
    if not text.isdigit() or not 1 <= int(text) <= len(items):
        raise Unsupported(f"a position {text} that is no result column")
    return int(text) - 1


def _output(name: str, expr: ir.Expr) -> ir.Output:
    try:
        affinity = affinity_of(expr)
    except Unsupported:
        affinity = MIXED
    return ir.Output(name, affinity, collation_of(expr)[0] or "BINARY")
