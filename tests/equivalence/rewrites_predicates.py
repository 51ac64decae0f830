"""Rewritings of conditions and expressions that keep a query's meaning in SQLite.

Each takes (tree, facts, rng) and changes the tree in place; it returns whether it found a place.
"""

import random

import facts as f
from facts import Facts
from sqlglot import exp

_MIRROR = {
    exp.EQ: exp.EQ, exp.NEQ: exp.NEQ, exp.LT: exp.GT, exp.GT: exp.LT,
    exp.LTE: exp.GTE, exp.GTE: exp.LTE,
}  # fmt: skip
_OPPOSITE = {
    exp.EQ: exp.NEQ, exp.NEQ: exp.EQ, exp.LT: exp.GTE, exp.GTE: exp.LT,
    exp.GT: exp.LTE, exp.LTE: exp.GT,
}  # fmt: skip
_VARYING = ("random", "randomblob", "changes", "total_changes", "last_insert_rowid")


def steady(node: exp.Expression) -> bool:
    """Whether evaluating the expression twice gives the same."""
    return not any(n.sql("sqlite").lower().startswith(_VARYING) for n in node.find_all(exp.Func))


def _some(tree, rng, kinds, wanted=lambda node: True) -> list[exp.Expression]:
    found = [node for node in tree.find_all(*kinds) if wanted(node)]
    return rng.sample(found, min(len(found), 2))


def swap_and_or(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """AND and OR are commutative in three-valued logic."""
    nodes = list(tree.find_all(exp.And, exp.Or))
    for node in nodes:
        left, right = f.paren(node.this), f.paren(node.expression)
        node.set("this", right)
        node.set("expression", left)
    return bool(nodes)


def mirror(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """a < b is b > a: affinity rules are symmetric, and no column has a collation of its own."""
    if facts.collated:
        return False
    nodes = list(tree.find_all(*_MIRROR))
    for node in nodes:
        kind = _MIRROR[type(node)]
        node.replace(kind(this=f.paren(node.expression), expression=f.paren(node.this)))
    return bool(nodes)


def negate_opposite(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """a < b is NOT (a >= b): both are NULL together."""
    nodes = _some(tree, rng, tuple(_OPPOSITE))
    for node in nodes:
        opposite = _OPPOSITE[type(node)](this=node.this.copy(), expression=node.expression.copy())
        node.replace(exp.Paren(this=exp.Not(this=exp.Paren(this=opposite))))
    return bool(nodes)


def de_morgan(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """a AND b is NOT (NOT a OR NOT b), in three-valued logic too; so with AND and OR exchanged."""
    nodes = list(tree.find_all(exp.And, exp.Or))
    if not nodes:
        return False
    node = rng.choice(nodes)
    other = exp.Or if isinstance(node, exp.And) else exp.And
    negated = other(
        this=exp.Not(this=exp.Paren(this=node.this.copy())),
        expression=exp.Not(this=exp.Paren(this=node.expression.copy())),
    )
    node.replace(exp.Paren(this=exp.Not(this=exp.Paren(this=negated))))
    return True


def between_to_comparisons(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """x BETWEEN a AND b is x >= a AND x <= b, but for evaluating x twice."""
    nodes = [n for n in tree.find_all(exp.Between) if steady(n.this)]
    for node in nodes:
        low = exp.GTE(this=f.paren(node.this), expression=f.paren(node.args["low"]))
        high = exp.LTE(this=f.paren(node.this), expression=f.paren(node.args["high"]))
        node.replace(exp.Paren(this=exp.And(this=low, expression=high)))
    return bool(nodes)


def comparisons_to_between(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """The same the other way round, where AND joins the two."""
    for where in tree.find_all(exp.Where):
        parts = f.conjuncts(where.this)
        for low in parts:
            for high in parts:
                a, b = low.unnest(), high.unnest()
                if isinstance(a, exp.GTE) and isinstance(b, exp.LTE) and a.this == b.this:
                    if not isinstance(a.this, exp.Column):
                        continue
                    between = exp.Between(
                        this=a.this.copy(),
                        low=f.paren(a.expression),
                        high=f.paren(b.expression),
                    )
                    rest = [part for part in parts if part is not low and part is not high]
                    where.set("this", f.conjunction([between, *rest]))
                    return True
    return False


def in_list_to_or(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """x IN (1, 2) is x = 1 OR x = 2: a literal has no affinity of its own."""
    nodes = [
        node
        for node in tree.find_all(exp.In)
        if isinstance(node.this, exp.Column)
        and node.expressions
        and all(isinstance(item, exp.Literal) for item in node.expressions)
    ]
    for node in nodes:
        parts = [exp.EQ(this=node.this.copy(), expression=i.copy()) for i in node.expressions]
        node.replace(exp.Paren(this=exp.or_(*parts, copy=False)))
    return bool(nodes)


def or_to_in_list(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """The same the other way round."""

    def literal_of(node: exp.Expression) -> tuple[exp.Column, exp.Literal] | None:
        node = node.unnest()
        if isinstance(node, exp.EQ) and isinstance(node.this, exp.Column):
            return (
                (node.this, node.expression) if isinstance(node.expression, exp.Literal) else None
            )
        return None

    found = False
    for node in list(tree.find_all(exp.Or)):
        left, right = literal_of(node.this), literal_of(node.expression)
        if left and right and left[0] == right[0] and node.parent is not None:
            node.replace(exp.In(this=left[0].copy(), expressions=[left[1].copy(), right[1].copy()]))
            found = True
    return found


def say_not_null(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """A comparison with a column is never true where the column is NULL, so WHERE may say so."""
    found = False
    for where in list(tree.find_all(exp.Where)):
        parts = f.conjuncts(where.this)
        for part in parts:
            inner = part.unnest()
            if isinstance(inner, tuple(_MIRROR)) and isinstance(inner.this, exp.Column):
                said = exp.Not(this=exp.Is(this=inner.this.copy(), expression=exp.Null()))
                where.set("this", f.conjunction([said, *parts]))
                found = True
                break
    return found


def iif_to_case(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """IIF(c, a, b) is CASE WHEN c THEN a ELSE b END, by definition."""
    nodes = [n for n in tree.find_all(exp.If) if not isinstance(n.parent, exp.Case)]
    for node in nodes:
        arm = exp.If(this=node.this.copy(), true=node.args["true"].copy())
        default = node.args.get("false")
        node.replace(exp.Case(ifs=[arm], default=default.copy() if default else None))
    return bool(nodes)


def case_to_iif(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """The same the other way round."""
    nodes = [
        n
        for n in tree.find_all(exp.Case)
        if n.this is None and len(n.args["ifs"]) == 1 and n.args.get("default")
    ]
    for node in nodes:
        arm = node.args["ifs"][0]
        args = [arm.this.copy(), arm.args["true"].copy(), node.args["default"].copy()]
        node.replace(exp.Anonymous(this="IIF", expressions=args))
    return bool(nodes)


def coalesce_to_case(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """COALESCE(a, b) is CASE WHEN a IS NOT NULL THEN a ELSE b END; neither has an affinity."""
    nodes = [n for n in tree.find_all(exp.Coalesce) if len(n.expressions) == 1 and steady(n.this)]
    for node in nodes:
        known = exp.Not(this=exp.Is(this=f.paren(node.this), expression=exp.Null()))
        arm = exp.If(this=known, true=node.this.copy())
        node.replace(exp.Case(ifs=[arm], default=node.expressions[0].copy()))
    return bool(nodes)


def swap_operands(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """a + b is b + a and a * b is b * a, for integers, REALs and what is made into them."""
    nodes = list(tree.find_all(exp.Add, exp.Mul))
    for node in nodes:
        left, right = f.paren(node.this), f.paren(node.expression)
        node.replace(type(node)(this=right, expression=left))
    return bool(nodes)


def average_to_total(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """AVG(x) is TOTAL(x) / COUNT(x): a REAL sum over the number of values; NULL of none."""
    nodes = [
        n
        for n in tree.find_all(exp.Avg)
        if not isinstance(n.this, exp.Distinct)
        and not isinstance(n.parent, exp.Window | exp.Filter)
    ]
    for node in nodes:
        total = exp.Anonymous(this="TOTAL", expressions=[node.this.copy()])
        node.replace(
            exp.Paren(this=exp.Div(this=total, expression=exp.Count(this=node.this.copy())))
        )
    return bool(nodes)


def count_one(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """COUNT(*) is COUNT(1): it counts where its argument is not NULL."""
    nodes = [n for n in tree.find_all(exp.Count) if isinstance(n.this, exp.Star)]
    for node in nodes:
        node.set("this", exp.Literal.number(1))
    return bool(nodes)


def always_true(tree: exp.Expression, facts: Facts, rng: random.Random) -> bool:
    """AND 1 and OR 0 change no condition's truth."""
    nodes = list(tree.find_all(exp.Where))
    for node in nodes:
        inner = exp.Paren(this=exp.Or(this=f.paren(node.this), expression=exp.Literal.number(0)))
        node.set("this", exp.And(this=inner, expression=exp.Literal.number(1)))
    return bool(nodes)
