"""Gold queries made wrong as published benchmarks' are: for measuring what wrong golds cost.

Each kind is one mechanical change of the query's syntax tree. A corruption is kept only if it runs,
returns something and is told from the gold query under the question's own grading.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import sqlglot
from sqlglot import exp

from jax_t2sql.errors import UserError
from jax_t2sql.sql import (
    Limits,
    Sandbox,
    Schema,
    is_empty,
    parse_mode,
    read_schema,
    resolve_database,
    results_equal,
)
from jax_t2sql.text2sql import Problem

_TURNED = {
    exp.GT: exp.LT, exp.LT: exp.GT, exp.GTE: exp.LTE, exp.LTE: exp.GTE, exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
}  # fmt: skip


def lost_distinct(tree: exp.Expression, schema: Schema) -> Iterator[exp.Expression]:
    """SELECT DISTINCT or an aggregate's DISTINCT without the word."""
    for node in list(tree.find_all(exp.Distinct)):
        changed, place = _copy(tree, node)
        if isinstance(place.parent, exp.Select):
            place.parent.set("distinct", None)
        else:  # count(DISTINCT a)
            place.replace(place.expressions[0])
        yield changed


def ties_cut(tree: exp.Expression, schema: Schema) -> Iterator[exp.Expression]:
    """One row of several right ones: an extreme by ORDER BY and LIMIT 1, or a bare LIMIT 1."""
    if not isinstance(tree, exp.Select) or tree.args.get("limit"):
        return
    for node in list(tree.find_all(exp.EQ)):
        inner = node.expression.find(exp.Max, exp.Min)
        if isinstance(node.expression, exp.Subquery) and inner is not None:
            changed, place = _copy(tree, node)
            _drop_condition(place)
            order = exp.Ordered(this=node.this.copy(), desc=isinstance(inner, exp.Max))
            changed.set("order", exp.Order(expressions=[order]))
            yield changed.limit(1)
    yield tree.copy().limit(1)


def wrong_predicate(tree: exp.Expression, schema: Schema) -> Iterator[exp.Expression]:
    """A condition turned round, or left out."""
    for where in tree.find_all(exp.Where, exp.Having):
        conditions = where.find_all(exp.Predicate, exp.Binary)
        for node in [n for n in conditions if not isinstance(n, exp.Connector)]:
            if type(node) in _TURNED and not isinstance(node.parent, exp.Paren):
                changed, place = _copy(tree, node)
                turned = _TURNED[type(node)](this=place.this.copy(), expression=place.expression)
                place.replace(turned)
                yield changed
            if isinstance(node.parent, (exp.And, exp.Where, exp.Having)):
                changed, place = _copy(tree, node)
                _drop_condition(place)
                yield changed


def missing_join(tree: exp.Expression, schema: Schema) -> Iterator[exp.Expression]:
    """A joined table left out, with every condition that names it."""
    for node in list(tree.find_all(exp.Join)):
        if not isinstance(node.this, exp.Table):
            continue
        changed, place = _copy(tree, node)
        select = place.find_ancestor(exp.Select)
        lost = node.this
        columns = {
            column.name.lower()
            for table in schema.tables
            if table.name.lower() == lost.name.lower()
            for column in table.columns
        }
        kept = {
            column.name.lower()
            for table in schema.tables
            if any(t.name.lower() == table.name.lower() and t is not lost
                   for t in tree.find_all(exp.Table))
            for column in table.columns
        }  # fmt: skip
        place.pop()

        def names_lost(part: exp.Expression, alias=lost.alias_or_name, own=columns - kept) -> bool:
            return any(
                column.table.lower() == alias.lower()
                or (not column.table and column.name.lower() in own)
                for column in part.find_all(exp.Column)
            )

        where = select.args.get("where")
        for condition in list(where.this.flatten()) if where else []:
            if names_lost(condition):
                _drop_condition(condition)
        if not names_lost(select):
            yield changed


def wrong_column(tree: exp.Expression, schema: Schema) -> Iterator[exp.Expression]:
    """Another column of the same table in the place of one that is selected or aggregated."""
    if not isinstance(tree, exp.Select):
        return
    for projection in tree.expressions:
        for node in list(projection.find_all(exp.Column)):
            for table in schema.tables:
                names = [column.name for column in table.columns]
                if node.name.lower() not in [name.lower() for name in names]:
                    continue
                for name in names:
                    if name.lower() != node.name.lower():
                        changed, place = _copy(tree, node)
                        place.set("this", exp.to_identifier(name))
                        yield changed


KINDS: Mapping[str, Callable[[exp.Expression, Schema], Iterator[exp.Expression]]] = {
    "lost DISTINCT": lost_distinct,
    "ties cut by LIMIT": ties_cut,
    "wrong predicate": wrong_predicate,
    "missing join": missing_join,
    "wrong column": wrong_column,
}


@dataclass(frozen=True)
class Corrupted:
    """Questions some of whose golds are wrong.

    Attributes:
      problems: all of them, in the order given.
      kinds: kind of corruption by question id.
    """

    problems: list[Problem]
    kinds: dict[str, str]


def corrupt(
    problems: Sequence[Problem],
    databases: Path,
    *,
    share: float,
    seed: int,
    kinds: Sequence[str] = tuple(KINDS),
) -> Corrupted:
    """Makes a share of the golds wrong, each by the kind that has been used least and can be.

    Raises:
      UserError: a database is missing, a kind is unknown, or too few golds can be made wrong.
    """
    unknown = set(kinds) - set(KINDS)
    if unknown or not 0 <= share <= 1:
        raise UserError(
            f"share is {share} and kinds {list(kinds)}; share must be from 0 to 1, kinds among"
            f" {list(KINDS)}"
        )
    rng = random.Random(f"corruption/{seed}")
    wanted = round(share * len(problems))
    found: dict[str, tuple[str, str]] = {}
    counts: Counter[str] = Counter()
    with _Databases(databases) as opened:
        for problem in rng.sample(list(problems), len(problems)):
            if len(found) == wanted:
                break
            for kind in sorted(kinds, key=lambda kind: (counts[kind], rng.random())):
                wrong = _first_that_differs(problem, kind, opened, rng)
                if wrong is not None:
                    found[problem.question_id] = kind, wrong
                    counts[kind] += 1
                    break
    if len(found) < wanted:
        raise UserError(
            f"only {len(found)} of {len(problems)} golds can be made wrong, not {wanted}; ask for a"
            " smaller share"
        )
    return Corrupted(
        [
            replace(p, gold_sql=found[p.question_id][1]) if p.question_id in found else p
            for p in problems
        ],
        {question: kind for question, (kind, _) in found.items()},
    )


def _first_that_differs(
    problem: Problem, kind: str, opened: "_Databases", rng: random.Random
) -> str | None:
    sandbox, schema = opened.of(problem.db_id)
    try:
        tree = sqlglot.parse_one(problem.gold_sql, read="sqlite")
    except sqlglot.errors.SqlglotError:
        return None
    gold, mode = sandbox.execute(problem.gold_sql), parse_mode(problem.grading)
    if not gold.ok or is_empty(gold):
        return None
    candidates = [changed.sql(dialect="sqlite") for changed in KINDS[kind](tree, schema)]
    rng.shuffle(candidates)
    for sql in candidates:
        outcome = sandbox.execute(sql)
        usable = outcome.ok and not is_empty(outcome)
        if usable and not results_equal(gold.rows, outcome.rows, mode):
            return sql
    return None


class _Databases:
    """Open sandboxes and schemas by database."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, tuple[Sandbox, Schema]] = {}

    def of(self, db_id: str) -> tuple[Sandbox, Schema]:
        if db_id not in self._open:
            path = resolve_database(self._folder, db_id)
            self._open[db_id] = Sandbox(path, limits=Limits()), read_schema(path)
        return self._open[db_id]

    def __enter__(self) -> "_Databases":
        return self

    def __exit__(self, *_: object) -> None:
        for sandbox, _schema in self._open.values():
            sandbox.close()


def _copy(tree: exp.Expression, node: exp.Expression) -> tuple[exp.Expression, exp.Expression]:
    """A copy of the tree, and the copy's node at the place of `node`."""
    for index, other in enumerate(tree.walk()):
        if other is node:
            copied = tree.copy()
            for place, twin in enumerate(copied.walk()):
                if place == index:
                    return copied, twin
    raise ValueError("the node is none of the tree's")


def _drop_condition(node: exp.Expression) -> None:
    """Takes a condition out of its WHERE, HAVING or AND."""
    parent = node.parent
    if isinstance(parent, exp.And):
        parent.replace(parent.expression if parent.this is node else parent.this)
    else:
        parent.pop()
