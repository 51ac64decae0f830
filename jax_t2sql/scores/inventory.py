"""What a query says, as parts that can be compared with another query's.

Names lose their case, quotes and aliases, columns get their tables, comparisons face one way.
Nesting is levelled: a filter counts wherever it stands.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from jax_t2sql.scores.tags import parse
from jax_t2sql.sql.schema import fold

_MIRRORED = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}
_SYMMETRIC = (exp.EQ, exp.NEQ)
_COMPARISONS = (*_SYMMETRIC, *_MIRRORED, exp.Like, exp.Is, exp.In, exp.Between)

# Names of the columns of each table, folded.
Columns = Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Filter:
    """One condition among those joined by AND.

    Attributes:
      text: all of it.
      subject, operator, value: of a plain comparison; operator "" where it is none.
    """

    text: str
    subject: str = ""
    operator: str = ""
    value: str = ""


@dataclass(frozen=True)
class Inventory:
    """The parts of one query.

    Attributes:
      outputs: of the outermost select list, in order.
      tables: names, as often as they occur.
      joins: kinds of joins (inner, left, …) and the joined tables.
      links: conditions that set columns of two tables equal.
      filters: conditions of WHERE, ON and HAVING, but for links.
      groups: keys of GROUP BY; ungrouped: whether it aggregates without any.
      aggregates: as often as they occur.
      order: keys of the outermost ORDER BY, with DESC.
      limit: of the outermost query; "" without.
      distinct: of the outermost select list.
      operations: UNION, INTERSECT, EXCEPT.
    """

    outputs: tuple[str, ...]
    tables: Counter[str]
    joins: Counter[tuple[str, str]]
    links: Counter[str]
    filters: Counter[Filter]
    groups: frozenset[str]
    aggregates: Counter[str]
    order: tuple[str, ...]
    limit: str
    distinct: bool
    operations: Counter[str]


def take_inventory(sql: str, columns: Columns) -> Inventory | None:
    """The parts of a query; None where sqlglot cannot read it.

    Args:
      sql: one query.
      columns: of the database's tables, so that a column can be told from a text in double quotes,
        and named with its table.
    """
    tree = parse(sql)
    if tree is None:
        return None
    _level(tree, columns)
    outer = tree
    while isinstance(outer, exp.SetOperation | exp.Subquery):
        outer = outer.this
    filters, links = _conditions(tree)
    limit = tree.args.get("limit")
    order = tree.args.get("order")
    return Inventory(
        outputs=tuple(_text(e.unalias()) for e in outer.expressions),
        tables=Counter(t.name for t in tree.find_all(exp.Table)),
        joins=Counter(
            ((j.side or "inner").lower(), j.this.name)
            for j in tree.find_all(exp.Join)
            if isinstance(j.this, exp.Table)
        ),
        links=links,
        filters=filters,
        groups=frozenset(_text(e) for g in tree.find_all(exp.Group) for e in g.expressions),
        aggregates=Counter(_text(a) for a in tree.find_all(exp.AggFunc)),
        order=tuple(_text(e) for e in order.expressions) if order else (),
        limit=_text(limit.expression) if limit else "",
        distinct=isinstance(outer, exp.Select) and outer.args.get("distinct") is not None,
        operations=Counter(type(o).__name__.upper() for o in tree.find_all(exp.SetOperation)),
    )


def _level(tree: exp.Expression, columns: Columns) -> None:
    """Rewrites names in place."""
    real = {}  # what aliases stand for
    nearby: dict[int, list[str]] = {}  # tables of each SELECT's own FROM
    for table in tree.find_all(exp.Table):
        name = fold(table.name)
        nearby.setdefault(id(table.find_ancestor(exp.Select)), []).append(name)
        real[fold(table.alias or table.name)] = name
        table.set("this", exp.to_identifier(name))
        table.set("alias", None)
    used = dict.fromkeys(real.values())
    for column in list(tree.find_all(exp.Column)):
        name, identifier = fold(column.name), column.this
        if not column.table:
            near = nearby.get(id(column.find_ancestor(exp.Select)), ())
            owners = [t for t in (*near, *used) if name in columns.get(t, ())]
            known = any(name in columns.get(table, ()) for table in used)
            quoted = isinstance(identifier, exp.Identifier) and identifier.quoted
            if quoted and columns and not known:
                column.replace(exp.Literal.string(column.name))
                continue
            owner = owners[0] if owners else ""
        else:
            owner = real.get(fold(column.table), fold(column.table))
        if isinstance(identifier, exp.Identifier):
            plain = exp.column(exp.to_identifier(name), table=exp.to_identifier(owner or None))
            column.replace(plain)


def _text(node: exp.Expression) -> str:
    """The expression as SQL, names without quotes."""
    plain = node.copy()
    for identifier in plain.find_all(exp.Identifier):
        identifier.set("quoted", False)
    return plain.sql(dialect="sqlite", normalize_functions="upper")


def _conditions(tree: exp.Expression) -> tuple[Counter[Filter], Counter[str]]:
    filters: Counter[Filter] = Counter()
    links: Counter[str] = Counter()
    for holder in tree.find_all(exp.Where, exp.Having, exp.Join):
        condition = holder.args.get("on") if isinstance(holder, exp.Join) else holder.this
        for part in _parts(condition) if condition else ():
            sides = [part.args.get("this"), part.args.get("expression")]
            if isinstance(part, exp.EQ) and all(isinstance(s, exp.Column) for s in sides):
                links[" = ".join(sorted(map(_text, sides)))] += 1
            else:
                filters[_filter(part)] += 1
    return filters, links


def _parts(condition: exp.Expression) -> Iterator[exp.Expression]:
    if isinstance(condition, exp.And):
        yield from _parts(condition.left)
        yield from _parts(condition.right)
    elif isinstance(condition, exp.Paren):
        yield from _parts(condition.this)
    else:
        yield condition


def _filter(part: exp.Expression) -> Filter:
    negated = isinstance(part, exp.Not)
    inner = part.this if negated else part
    if isinstance(inner, exp.Paren):
        inner = inner.this
    if not isinstance(inner, _COMPARISONS):
        return Filter(_text(part))
    left, right, kind = inner.this, inner.args.get("expression"), type(inner)
    if isinstance(left, exp.Literal) and right is not None:
        left, right, kind = right, left, _MIRRORED.get(kind, kind)
    subject = _text(left)
    value = _text(right) if right is not None else _text(inner).removeprefix(subject)
    operator = ("NOT " if negated else "") + kind.__name__.upper()
    return Filter(_words(subject, operator, value, part), subject, operator, value)


_SIGNS = {"EQ": "=", "NEQ": "<>", "GT": ">", "GTE": ">=", "LT": "<", "LTE": "<="}


def _words(subject: str, operator: str, value: str, part: exp.Expression) -> str:
    sign = _SIGNS.get(operator)
    return f"{subject} {sign} {value}" if sign else _text(part)
