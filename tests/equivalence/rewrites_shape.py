"""Rewritings of a query's overall shape that keep its meaning in SQLite.

Each takes (tree, facts, rng) and returns the new tree, or None where it has no place.
"""

import random

import facts as f
from facts import Facts
from rewrites_sources import add_common
from sqlglot import exp


def wrap_in_common(tree: exp.Expression, facts: Facts, rng: random.Random):
    """Selecting everything from a query is the query; only its order is not promised."""
    name = f.fresh(tree, "whole")
    outer = exp.select("*").from_(name)
    add_common(outer, name, tree)
    return outer


def wrap_in_derived(tree: exp.Expression, facts: Facts, rng: random.Random):
    """The same with a derived table."""
    alias = exp.TableAlias(this=exp.to_identifier(f.fresh(tree, "whole")))
    return exp.select("*").from_(exp.Subquery(this=tree, alias=alias))


def add_distinct(tree: exp.Expression, facts: Facts, rng: random.Random):
    """Where duplicates do not count, DISTINCT does nothing; a LIMIT would count rows after it."""
    if not isinstance(tree, exp.Select) or tree.args.get("distinct") or tree.args.get("limit"):
        return None
    tree.set("distinct", exp.Distinct())
    return tree


def drop_distinct(tree: exp.Expression, facts: Facts, rng: random.Random):
    """The same the other way round."""
    if not isinstance(tree, exp.Select) or not tree.args.get("distinct") or tree.args.get("limit"):
        return None
    tree.set("distinct", None)
    return tree


def drop_order(tree: exp.Expression, facts: Facts, rng: random.Random):
    """Where order does not count and nothing is cut off, ORDER BY does nothing."""
    if not tree.args.get("order") or tree.args.get("limit"):
        return None
    tree.set("order", None)
    return tree


def distinct_to_group_by(tree: exp.Expression, facts: Facts, rng: random.Random):
    """SELECT DISTINCT a, b is SELECT a, b GROUP BY a, b."""
    if not f.is_plain(tree) or not tree.args.get("distinct"):
        return None
    items = [item.unalias() for item in tree.expressions]
    if not all(isinstance(item, exp.Column) and not item.is_star for item in items):
        return None
    tree.set("distinct", None)
    tree.set("group", exp.Group(expressions=[item.copy() for item in items]))
    return tree


def group_by_to_distinct(tree: exp.Expression, facts: Facts, rng: random.Random):
    """The same the other way round, for a GROUP BY that nothing is aggregated over."""
    if not isinstance(tree, exp.Select) or not tree.args.get("group"):
        return None
    if any(tree.args.get(part) for part in ("having", "order", "limit", "distinct")):
        return None
    keys = tree.args["group"].expressions
    items = [item.unalias() for item in tree.expressions]
    columns = all(isinstance(n, exp.Column) and not n.is_star for n in (*keys, *items))
    if not columns or {k.sql().lower() for k in keys} != {i.sql().lower() for i in items}:
        return None
    tree.set("group", None)
    tree.set("distinct", exp.Distinct())
    return tree


def reverse_group_keys(tree: exp.Expression, facts: Facts, rng: random.Random):
    """The keys of a GROUP BY are a set; their order may at most show in the order of rows."""
    groups = [g for g in tree.find_all(exp.Group) if len(g.expressions) > 1]
    for group in groups:
        group.set("expressions", list(reversed(group.expressions)))
    return tree if groups else None


def having_to_where(tree: exp.Expression, facts: Facts, rng: random.Random):
    """HAVING chooses among groups as a WHERE around them does."""
    if not isinstance(tree, exp.Select) or not tree.args.get("having"):
        return None
    if any(tree.args.get(part) for part in ("order", "limit", "distinct", "with_")):
        return None
    if any(isinstance(n, exp.Star) for item in tree.expressions for n in [item.unalias()]):
        return None
    if any(isinstance(item, exp.Column) and item.is_star for item in tree.expressions):
        return None
    keep, name = f.fresh(tree, "keep"), f.fresh(tree, "grouped")
    names = [f.fresh(tree, f"c{i}") for i in range(len(tree.expressions))]
    # A name given in the select list may be used in HAVING: then it must stay what it is.
    used = {c.name.lower() for c in tree.args["having"].find_all(exp.Column) if not c.table}
    if used & {item.alias.lower() for item in tree.expressions if item.alias}:
        return None
    items = [
        exp.alias_(item.unalias().copy(), new)
        for item, new in zip(tree.expressions, names, strict=True)
    ]
    condition = exp.alias_(exp.Paren(this=tree.args["having"].this.copy()), keep)
    aliases = {item.alias.lower() for item in tree.expressions if item.alias}
    group = tree.args.get("group")
    if group and aliases & {c.name.lower() for c in group.find_all(exp.Column) if not c.table}:
        return None
    tree.set("expressions", [*items, condition])
    tree.set("having", None)
    derived = exp.Subquery(this=tree, alias=exp.TableAlias(this=exp.to_identifier(name)))
    return exp.select(*names).from_(derived).where(exp.column(keep))


def _two_selects(tree: exp.Expression, kinds: tuple) -> bool:
    return (
        isinstance(tree, kinds)
        and isinstance(tree.this, exp.Select)
        and isinstance(tree.expression, exp.Select)
        and not any(tree.args.get(part) for part in ("order", "limit", "with_"))
    )


def swap_union(tree: exp.Expression, facts: Facts, rng: random.Random):
    """UNION and INTERSECT are commutative."""
    if not _two_selects(tree, (exp.Union, exp.Intersect)):
        return None
    left, right = tree.this.copy(), tree.expression.copy()
    tree.set("this", right)
    tree.set("expression", left)
    return tree


def union_to_distinct(tree: exp.Expression, facts: Facts, rng: random.Random):
    """UNION is the distinct rows of UNION ALL."""
    if not _two_selects(tree, (exp.Union,)) or not tree.args.get("distinct"):
        return None
    tree.set("distinct", False)
    alias = exp.TableAlias(this=exp.to_identifier(f.fresh(tree, "both")))
    return exp.select("*").from_(exp.Subquery(this=tree, alias=alias)).distinct()


def or_to_union(tree: exp.Expression, facts: Facts, rng: random.Random):
    """Rows where p OR q is true are those where p is and those where q is, as a set."""
    if not f.is_plain(tree) or not tree.args.get("where"):
        return None
    condition = tree.args["where"].this.unnest()
    if not isinstance(condition, exp.Or):
        return None
    first, second = tree.copy(), tree.copy()
    first.set("where", exp.Where(this=condition.this.copy()))
    second.set("where", exp.Where(this=condition.expression.copy()))
    return exp.Union(this=first, expression=second, distinct=True)


def _counts_rows(tree: exp.Expression) -> bool:
    """Whether it is SELECT COUNT(*) FROM ... WHERE ... and nothing else."""
    return (
        isinstance(tree, exp.Select)
        and len(tree.expressions) == 1
        and isinstance(tree.expressions[0].unalias(), exp.Count)
        and isinstance(tree.expressions[0].unalias().this, exp.Star)
        and bool(tree.args.get("from_"))
        and not any(
            tree.args.get(part) for part in ("group", "having", "limit", "order", "distinct")
        )
    )


def count_in_case(tree: exp.Expression, facts: Facts, rng: random.Random):
    """COUNT(*) of the rows where p is COUNT(CASE WHEN p THEN 1 END) of all rows."""
    if not _counts_rows(tree) or not tree.args.get("where"):
        return None
    arm = exp.If(this=tree.args["where"].this.copy(), true=exp.Literal.number(1))
    tree.set("expressions", [exp.Count(this=exp.Case(ifs=[arm]))])
    tree.set("where", None)
    return tree


def count_filtered(tree: exp.Expression, facts: Facts, rng: random.Random):
    """... and COUNT(*) FILTER (WHERE p)."""
    if not _counts_rows(tree) or not tree.args.get("where"):
        return None
    where = exp.Where(this=tree.args["where"].this.copy())
    tree.set("expressions", [exp.Filter(this=exp.Count(this=exp.Star()), expression=where)])
    tree.set("where", None)
    return tree


def count_of_derived(tree: exp.Expression, facts: Facts, rng: random.Random):
    """COUNT(*) counts the rows of a derived table alike."""
    if not _counts_rows(tree) or tree.args.get("with_"):
        return None
    alias = exp.TableAlias(this=exp.to_identifier(f.fresh(tree, "counted")))
    tree.set("expressions", [exp.Literal.number(1)])
    derived = exp.Subquery(this=tree, alias=alias)
    return exp.select(exp.Count(this=exp.Star())).from_(derived)


def extreme_to_first(tree: exp.Expression, facts: Facts, rng: random.Random):
    """MAX(x) is the first x in descending order, NULL where there is none; MIN leaves NULL out."""
    if not isinstance(tree, exp.Select) or len(tree.expressions) != 1:
        return None
    extreme = tree.expressions[0].unalias()
    if not isinstance(extreme, exp.Max | exp.Min) or extreme.expressions or facts.collated:
        return None
    if any(tree.args.get(p) for p in ("group", "having", "limit", "order", "distinct", "with_")):
        return None
    if not tree.args.get("from_"):
        return None
    x = extreme.this
    if isinstance(x, exp.Distinct):
        return None
    tree.set("expressions", [x.copy()])
    if isinstance(extreme, exp.Min):
        where = tree.args.get("where")
        known = exp.Not(this=exp.Is(this=f.paren(x), expression=exp.Null()))
        parts = f.conjuncts(where.this if where else None)
        tree.set("where", exp.Where(this=f.conjunction([*parts, known])))
    order = exp.Ordered(this=x.copy(), desc=isinstance(extreme, exp.Max), nulls_first=True)
    if isinstance(extreme, exp.Max):
        order.set("nulls_first", False)
    tree.set("order", exp.Order(expressions=[order]))
    tree.set("limit", exp.Limit(expression=exp.Literal.number(1)))
    return exp.Select(expressions=[exp.Subquery(this=tree)])


def scalar_to_common(tree: exp.Expression, facts: Facts, rng: random.Random):
    """A subquery that sees nothing around it may be a common table of one row."""
    if not isinstance(tree, exp.Select):
        return None
    for node in tree.find_all(exp.Subquery):
        query = node.this
        if isinstance(node.parent, exp.From | exp.Join | exp.In | exp.CTE | exp.SetOperation):
            continue
        if not isinstance(query, exp.Select) or len(query.expressions) != 1:
            continue
        item = query.expressions[0].unalias()
        # An aggregate has no affinity, as the column of the common table then has none.
        if not isinstance(item, exp.Avg | exp.Count | exp.Sum | exp.Max | exp.Min):
            continue
        if any(query.args.get(p) for p in ("group", "having", "limit", "order", "distinct")):
            continue
        if not f.is_uncorrelated(query, facts):
            continue
        name, value = f.fresh(tree, "single"), f.fresh(tree, "value")
        common = query.copy()
        common.set("expressions", [exp.alias_(item.copy(), value)])
        node.set("this", exp.select(value).from_(name))
        add_common(tree, name, common)
        return tree
    return None
