"""Pairs of queries that are equal by construction, made from gold queries.

Every rewriting says in its docstring why SQLite gives the same result. The first query of a pair is
the gold's own text; the second is printed from the rewritten tree. A pair holds under "set" always,
and under "multiset" unless its rewriting counts on duplicates not mattering. Where the query leaves
its result to chance (LIMIT without a full order, bare columns), the two may differ as two runs of
one query may.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import rewrites_predicates as predicates
import rewrites_shape as shape
import rewrites_sources as origins
import rewrites_subqueries as subqueries
import sqlglot
from facts import Facts, read_facts
from golds import Gold
from sqlglot import exp

from jax_t2sql.sql import tokenize

IN_PLACE = (
    predicates.swap_and_or, predicates.mirror, predicates.negate_opposite, predicates.de_morgan,
    predicates.between_to_comparisons, predicates.comparisons_to_between,
    predicates.in_list_to_or, predicates.or_to_in_list, predicates.say_not_null,
    predicates.iif_to_case, predicates.case_to_iif, predicates.coalesce_to_case,
    predicates.swap_operands, predicates.average_to_total, predicates.count_one,
    predicates.always_true,
    origins.rename_aliases, origins.add_aliases, origins.reverse_joins, origins.on_to_where,
    origins.where_to_on, origins.left_to_right, origins.table_to_derived,
    origins.derived_to_common, origins.inline_common, subqueries.in_to_exists,
    subqueries.not_in_to_not_exists, subqueries.in_to_join,
)  # fmt: skip
WHOLE = (
    shape.wrap_in_common, shape.wrap_in_derived, shape.add_distinct, shape.drop_distinct,
    shape.drop_order, shape.distinct_to_group_by, shape.group_by_to_distinct,
    shape.reverse_group_keys, shape.having_to_where, shape.swap_union, shape.union_to_distinct,
    shape.or_to_union, shape.count_in_case, shape.count_filtered, shape.count_of_derived,
    shape.extreme_to_first, shape.scalar_to_common,
)  # fmt: skip
# These hold where duplicates do not count; the others hold for bags of rows, too.
SETS_ONLY = {"add_distinct", "drop_distinct", "or_to_union", "in_to_join"}
NAMES = tuple(rewriting.__name__ for rewriting in (*IN_PLACE, *WHOLE))


@dataclass(frozen=True)
class Pair:
    """Two queries that mean the same.

    Attributes:
      id: of the gold, and the names of the rewritings.
      gold: where the first query comes from.
      second: the other query.
      grading: the strictest mode under which they are equal.
      names: of the rewritings, in the order done.
    """

    id: str
    gold: Gold
    second: str
    grading: str
    names: tuple[str, ...]

    @property
    def first(self) -> str:
        return self.gold.sql


def rewrite(
    tree: exp.Expression, name: str, facts: Facts, rng: random.Random
) -> exp.Expression | None:
    """The tree rewritten in one way, or None; the tree given stays as it is."""
    tree = tree.copy()
    for rewriting in IN_PLACE:
        if rewriting.__name__ == name:
            return tree if rewriting(tree, facts, rng) else None
    (rewriting,) = (r for r in WHOLE if r.__name__ == name)
    return rewriting(tree, facts, rng)


def pairs_of(gold: Gold, *, seed: int = 0, chains: int = 2) -> Iterator[Pair]:
    """Every rewriting that has a place in a gold query, its layout changed, and some chains.

    Args:
      chains: how many pairs to make by three rewritings one after the other.
    """
    rng = random.Random(f"{gold.id}/{seed}")
    facts = read_facts(gold.ddl)
    try:
        tree = sqlglot.parse_one(gold.sql, read="sqlite")
    except sqlglot.errors.SqlglotError:
        return
    if not isinstance(tree, exp.Query):
        return
    yield Pair(f"{gold.id}/layout", gold, new_layout(gold.sql, rng), "multiset", ("layout",))
    usable = []
    for name in NAMES:
        new = rewrite(tree, name, facts, rng)
        if new is not None:
            usable.append(name)
            yield _pair(gold, new, (name,))
    for _ in range(chains):
        new, names = tree, []
        for name in rng.sample(usable, min(len(usable), 4)):
            further = rewrite(new, name, facts, rng)
            # Set-only steps come last: a step after them might count the rows that they make.
            if further is not None and not SETS_ONLY & set(names):
                new = further
                names.append(name)
        if len(names) > 1:
            yield _pair(gold, new, tuple(names))


def _pair(gold: Gold, tree: exp.Expression, names: tuple[str, ...]) -> Pair:
    grading = "set" if SETS_ONLY & set(names) else "multiset"
    return Pair(f"{gold.id}/{'+'.join(names)}", gold, tree.sql("sqlite"), grading, names)


_KEYWORDS = frozenset(
    "SELECT FROM WHERE AND OR NOT IN BETWEEN LIKE IS NULL JOIN INNER LEFT ON AS GROUP BY ORDER"
    " HAVING LIMIT DISTINCT CASE WHEN THEN ELSE END UNION INTERSECT EXCEPT EXISTS ASC DESC"
    " WITH".split()
)


def new_layout(sql: str, rng: random.Random) -> str:
    """The same tokens with other blanks, comments between them and other letters in keywords."""
    pieces = []
    for token in tokenize(sql):
        if token.kind == "comment":
            pieces.append(" ")
        elif token.kind == "space":
            pieces.append(rng.choice((" ", "\n  ", " /* ; ' */ ", "\t")))
        elif token.kind == "name" and token.text.upper() in _KEYWORDS:
            pieces.append(rng.choice((token.text.lower(), token.text.upper())))
        else:
            pieces.append(token.text)
    return "".join(pieces) + rng.choice(("", ";", "\n"))
