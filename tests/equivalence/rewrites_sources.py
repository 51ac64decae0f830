"""Rewritings of sources (joins, subqueries, common tables) that keep a query's meaning in SQLite.

Each takes (tree, facts, rng) and changes the tree in place; it returns whether it found a place.
"""

import random

import facts as f
from facts import Facts
from sqlglot import exp


def rename_aliases(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """Aliases of tables are names like others: each gets a new one, everywhere."""
    aliased = [n for n in tree.find_all(exp.Table, exp.Subquery) if n.args.get("alias")]
    names = {node.alias.lower() for node in aliased} - {""}
    taken = {n.name.lower() for n in tree.find_all(exp.Table)}
    taken |= {n.alias.lower() for n in tree.find_all(exp.CTE)} | set(facts.columns)
    if not names or names & taken:
        return False
    new = {name: f.fresh(tree, f"r{i}") for i, name in enumerate(sorted(names))}
    for node in aliased:
        if node.alias:
            node.args["alias"].set("this", exp.to_identifier(new[node.alias.lower()]))
    _requalify(tree, new)
    return True


def add_aliases(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """A table without an alias gets one; then that alone is its name."""
    bare = [
        n
        for n in tree.find_all(exp.Table)
        if not n.args.get("alias") and n.name.lower() in facts.columns
    ]
    # A common table of the same name would be meant instead.
    names = {n.name.lower() for n in bare} - {n.alias.lower() for n in tree.find_all(exp.CTE)}
    names -= {n.alias.lower() for n in tree.find_all(exp.Table, exp.Subquery) if n.alias}
    if not names:
        return False
    new = {name: f.fresh(tree, f"t{i}") for i, name in enumerate(sorted(names))}
    for node in bare:
        if node.name.lower() in new:
            alias = exp.to_identifier(new[node.name.lower()])
            node.set("alias", exp.TableAlias(this=alias))
    _requalify(tree, new)
    return True


def _requalify(tree: exp.Expression, new: dict[str, str]) -> None:
    for column in tree.find_all(exp.Column):
        if column.table.lower() in new:
            column.set("table", exp.to_identifier(new[column.table.lower()]))


def _inner_selects(tree: exp.Expression) -> list[exp.Select]:
    return [s for s in tree.find_all(exp.Select) if s.args.get("joins") and f.all_inner(s)]


def _take_on(select: exp.Select) -> list[exp.Expression]:
    """The parts of all ON conditions, taken out of their joins."""
    parts = []
    for join in select.args["joins"]:
        parts += f.conjuncts(join.args.get("on"))
        join.set("on", None)
    return parts


def reverse_joins(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """Inner joins are commutative and associative; a select list without a star names columns."""
    found = False
    for select in _inner_selects(tree):
        if f.has_star(select):
            continue
        parts = _take_on(select)
        order = list(reversed(f.sources(select)))
        select.args["from_"].set("this", order[0].copy())
        joins = [exp.Join(this=source.copy(), kind="INNER") for source in order[1:]]
        if parts:
            joins[-1].set("on", f.conjunction(parts))
        select.set("joins", joins)
        found = True
    return found


def on_to_where(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """Where all joins are inner, a condition in ON is one in WHERE."""
    found = False
    for select in _inner_selects(tree):
        parts = _take_on(select)
        if not parts:
            continue
        where = select.args.get("where")
        parts += f.conjuncts(where.this if where else None)
        for join in select.args["joins"]:
            join.set("kind", "CROSS")
        select.set("where", exp.Where(this=f.conjunction(parts)))
        found = True
    return found


def where_to_on(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """The same the other way round."""
    found = False
    for select in _inner_selects(tree):
        where = select.args.get("where")
        if not where:
            continue
        parts = _take_on(select) + f.conjuncts(where.this)
        for join in select.args["joins"]:
            join.set("kind", "INNER")
        select.args["joins"][-1].set("on", f.conjunction(parts))
        select.set("where", None)
        found = True
    return found


def left_to_right(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """a LEFT JOIN b is b RIGHT JOIN a, but for the order of columns under a star."""
    for select in tree.find_all(exp.Select):
        joins = select.args.get("joins") or []
        if len(joins) != 1 or f.has_star(select) or (joins[0].args.get("side") or "") != "LEFT":
            continue
        if not joins[0].args.get("on") or joins[0].args.get("method"):
            continue
        first, second = select.args["from_"].this.copy(), joins[0].this.copy()
        select.args["from_"].set("this", second)
        joins[0].set("this", first)
        joins[0].set("side", "RIGHT")
        joins[0].set("kind", None)
        return True
    return False


def table_to_derived(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """A table is SELECT * of itself; its columns keep their affinity, but there is no rowid."""
    if any(c.name.lower() in ("rowid", "oid", "_rowid_") for c in tree.find_all(exp.Column)):
        return False
    commons = {n.alias.lower() for n in tree.find_all(exp.CTE)}
    tables = [
        t
        for t in tree.find_all(exp.Table)
        if t.name.lower() in facts.columns
        and t.name.lower() not in commons
        and isinstance(t.parent, exp.From | exp.Join)
        and not t.args.get("joins")
    ]
    if not tables:
        return False
    table = rng.choice(tables)
    alias = exp.TableAlias(this=exp.to_identifier(table.alias_or_name, quoted=True))
    base = exp.Table(this=table.this.copy())
    table.replace(exp.Subquery(this=exp.select("*").from_(base), alias=alias))
    return True


def derived_to_common(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """A derived table of the outermost SELECT sees nothing but the schema: it may have a name."""
    if not isinstance(tree, exp.Select):
        return False
    derived = [s for s in f.sources(tree) if isinstance(s, exp.Subquery) and s.alias]
    if not derived:
        return False
    node = rng.choice(derived)
    name = f.fresh(tree, "common")
    query, alias = node.this.copy(), node.alias
    node.replace(
        exp.Table(this=exp.to_identifier(name), alias=exp.TableAlias(this=exp.to_identifier(alias)))
    )
    add_common(tree, name, query)
    return True


def add_common(tree: exp.Expression, name: str, query: exp.Expression) -> None:
    """Appends a common table to the query's own."""
    common = exp.CTE(this=query, alias=exp.TableAlias(this=exp.to_identifier(name)))
    with_ = tree.args.get("with_")
    if with_:
        with_.append("expressions", common)
    else:
        tree.set("with_", exp.With(expressions=[common]))


def inline_common(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """A common table stands for its query, wherever it is named."""
    withs = list(tree.find_all(exp.With))
    if len(withs) != 1 or withs[0].parent is not tree or withs[0].args.get("recursive"):
        return False
    commons = withs[0].expressions
    if any(c.args["alias"].args.get("columns") for c in commons):
        return False
    names = [c.alias.lower() for c in commons]
    if set(names) & set(facts.columns) or len(set(names)) < len(names):
        return False
    for common in reversed(list(commons)):
        common.pop()
        for table in list(tree.find_all(exp.Table)):
            if table.name.lower() == common.alias.lower():
                alias = exp.TableAlias(this=exp.to_identifier(table.alias_or_name))
                joins = table.args.get("joins")
                if joins:
                    return False
                table.replace(exp.Subquery(this=common.this.copy(), alias=alias))
    tree.set("with_", None)
    return True
