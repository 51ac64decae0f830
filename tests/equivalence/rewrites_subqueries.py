"""Rewritings of IN with a subquery that keep a query's meaning in SQLite.

Each takes (tree, facts, rng) and changes the tree in place; it returns whether it found a place.
"""

import random

import facts as f
from facts import Facts
from sqlglot import exp


def in_to_exists(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """x IN (SELECT y ...) is EXISTS (SELECT ... AND y = x) where only truth counts: in WHERE.

    IN compares by the affinities of x and y, as = does.
    """
    return _to_exists(tree, facts, negated=False)


def not_in_to_not_exists(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """x NOT IN (SELECT y ...) is NOT EXISTS (... y = x) where neither x nor y is ever NULL."""
    return _to_exists(tree, facts, negated=True)


def _to_exists(tree: exp.Expression, facts: Facts, *, negated: bool) -> bool:
    if facts.collated:
        return False
    found = False
    for select in list(tree.find_all(exp.Select)):
        where = select.args.get("where")
        for part in f.conjuncts(where.this if where else None):
            node = part.unnest()
            if negated != isinstance(node, exp.Not):
                continue
            member = node.this.unnest() if negated else node
            if not isinstance(member, exp.In) or not isinstance(
                member.args.get("query"), exp.Subquery
            ):
                continue
            matched = _match(select, member, facts, not_null=negated)
            if matched is not None:
                exists = exp.Exists(this=matched)
                part.replace(exp.Not(this=exists) if negated else exists)
                found = True
    return found


def _match(
    select: exp.Select, member: exp.In, facts: Facts, *, not_null: bool
) -> exp.Select | None:
    """The subquery of an IN with what it selects compared in its WHERE."""
    inner = member.args["query"].this
    if not f.is_plain(inner) or len(inner.expressions) != 1:
        return None
    x, y = member.this.unnest(), inner.expressions[0].unalias()
    if not isinstance(x, exp.Column) or not isinstance(y, exp.Column):
        return None
    outer_at, inner_at = f.resolve(select, x, facts), f.resolve(inner, y, facts)
    if not outer_at or not inner_at:
        return None
    if outer_at[0].lower() in {f.name_of(source) for source in f.sources(inner)}:
        return None  # the inner query would mean its own
    if not_null:
        joined = [*(select.args.get("joins") or []), *(inner.args.get("joins") or [])]
        if not all(map(f.is_inner, joined)):
            return None
        pair = (outer_at[1], x.name.lower()), (inner_at[1], y.name.lower())
        if not set(pair) <= facts.not_null:
            return None
    x, y = x.copy(), y.copy()
    x.set("table", exp.to_identifier(outer_at[0]))
    y.set("table", exp.to_identifier(inner_at[0]))
    query = inner.copy()
    where = query.args.get("where")
    parts = f.conjuncts(where.this if where else None)
    query.set("where", exp.Where(this=f.conjunction([*parts, exp.EQ(this=y, expression=x)])))
    query.set("expressions", [exp.Literal.number(1)])
    query.set("distinct", None)
    return query


def in_to_join(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """x IN (SELECT y ...) is a join with the distinct y, where duplicates do not count."""
    if not f.is_plain(tree) or f.has_star(tree) or not f.all_inner(tree) or facts.collated:
        return False
    if any(isinstance(item, exp.Column) and item.is_star for item in tree.expressions):
        return False
    where = tree.args.get("where")
    parts = f.conjuncts(where.this if where else None)
    for part in parts:
        node = part.unnest()
        if not isinstance(node, exp.In) or not isinstance(node.args.get("query"), exp.Subquery):
            continue
        inner, x = node.args["query"].this, node.this.unnest()
        if not f.is_plain(inner) or len(inner.expressions) != 1 or not isinstance(x, exp.Column):
            continue
        if not f.is_uncorrelated(inner, facts) or not isinstance(
            inner.expressions[0].unalias(), exp.Column
        ):
            continue
        name, key = f.fresh(tree, "wanted"), f.fresh(tree, "key")
        query = inner.copy()
        query.set("expressions", [exp.alias_(inner.expressions[0].unalias().copy(), key)])
        query.set("distinct", exp.Distinct())
        on = exp.EQ(this=x.copy(), expression=exp.column(key, table=name))
        derived = exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(name)))
        tree.append("joins", exp.Join(this=derived, kind="INNER", on=on))
        rest = [other for other in parts if other is not part]
        tree.set("where", exp.Where(this=f.conjunction(rest)) if rest else None)
        tree.set("distinct", exp.Distinct())
        return True
    return False
