"""Are two queries equal on every database with at most so many rows in each table?"""

import time
from dataclasses import dataclass

from jax_t2sql.equivalence.catalog import Catalog, Rows
from jax_t2sql.equivalence.symbolic.confirming import confirm
from jax_t2sql.equivalence.symbolic.context import Context, Env
from jax_t2sql.equivalence.symbolic.decoding import decode
from jax_t2sql.equivalence.symbolic.difference import difference
from jax_t2sql.equivalence.symbolic.errors import Unsupported
from jax_t2sql.equivalence.symbolic.ir import Constant, Query
from jax_t2sql.equivalence.symbolic.opaque import NUMERIC_AFFINITY, compute
from jax_t2sql.equivalence.symbolic.reading import read
from jax_t2sql.equivalence.symbolic.relations import rows_of
from jax_t2sql.equivalence.symbolic.solving import Answer, Question
from jax_t2sql.equivalence.symbolic.tables import (
    constraints,
    ordinary,
    small_numbers,
    unknown_tables,
)
from jax_t2sql.equivalence.symbolic.terms import Terms, TooLarge
from jax_t2sql.equivalence.symbolic.values import LARGE
from jax_t2sql.equivalence.symbolic.walking import rebuilt, tables_of
from jax_t2sql.errors import UserError
from jax_t2sql.sql.modes import Mode, parse_mode
from jax_t2sql.sql.schema import fold


@dataclass(frozen=True)
class Proved:
    """Equal under the mode on every database of the schema with at most `bound` rows a table.

    Attributes:
      bound: rows a table, at most.
      empty: whether neither query gives a row on any of these databases, so that little is proved.
      largest: where it is not None, databases with numbers of more than this size are left aside:
        on them REALs do not hold INTEGERs exactly.
    """

    bound: int
    empty: bool = False
    largest: int | None = None


@dataclass(frozen=True)
class Model:
    """A database on which the two may differ: a candidate, to be replayed."""

    rows: Rows


@dataclass(frozen=True)
class NoProof:
    """Neither. The reason names the construct that is not modelled, or the limit that was met."""

    reason: str


Proof = Proved | Model | NoProof


def prove(
    gold: str,
    pred: str,
    catalog: Catalog,
    *,
    mode: Mode | str | None = "set",
    bound: int = 2,
    seconds: float = 5.0,
) -> Proof:
    """Tries to prove that two queries are equal.

    Args:
      gold, pred: the queries.
      catalog: the schema.
      mode: the grading mode under which results are compared.
      bound: rows a table may have, at most.
      seconds: CPU time allowed.

    Raises:
      UserError: bound or seconds are out of range, or the mode is unknown.
    """
    if not 1 <= bound <= 10:
        raise UserError(f"bound is {bound!r}; it must be from 1 to 10 rows a table")
    if not seconds > 0:
        raise UserError(f"seconds is {seconds!r}; it must be above 0")
    if not isinstance(mode, Mode):
        mode = parse_mode(mode)
    try:
        return _prove(gold, pred, catalog, mode, bound, time.thread_time() + seconds)
    except Unsupported as error:
        return NoProof(str(error))
    except TooLarge:
        return NoProof("the formula is too large at this bound")
    except RecursionError:
        return NoProof("a query nested too deeply")


def _prove(
    gold: str, pred: str, catalog: Catalog, mode: Mode, bound: int, deadline: float
) -> Proof:
    queries = []
    for sql in (gold, pred):
        query = read(sql, catalog)
        confirm(sql, query, catalog)
        queries.append(query)
    t = Terms()
    names = sorted(with_parents(catalog, set().union(*map(tables_of, queries))))
    tables = unknown_tables(t, catalog, names, bound)
    ctx = Context(
        t,
        tables,
        rows_of,
        bound=bound,
        deadline=deadline,
        exact_sums=mode.kind == "bird",  # the one mode that compares REALs to the bit
    )
    results = [(query, rows_of(ctx, query, Env({}, t.true))) for query in queries]
    apart = difference(ctx, results[0], results[1], mode)
    chance = t.or_(*ctx.doubts)
    question = Question(constraints(t, catalog, tables), deadline)
    answer = question.ask(t.or_(apart, chance))
    largest = None
    rounds = {"key:CAST(? AS REAL)+0*?", "key:CAST(? AS REAL)"} & t.functions
    if answer.kind == "yes" and rounds and not any(map(_names_large_number, queries)):
        small = [*ctx.smallness, *small_numbers(t, tables)]
        if question.ask(t.or_(apart, chance), *small).kind == "no":
            answer, largest = Answer("no"), LARGE
    if answer.kind == "no":
        shown = t.or_(*(row.present for row in results[0][1]))
        return Proved(bound, question.ask(shown).kind == "no", largest)
    if answer.kind == "yes" and chance is not t.false:
        answer = question.ask(apart)
        if answer.kind == "no":
            return NoProof("the answer is left to chance: ties that count, or bare columns")
    if answer.kind == "unknown":
        return NoProof(answer.reason)
    wished = question.ask(apart, *ctx.wishes, *ordinary(t, catalog, tables))
    return Model(decode(catalog, tables, wished if wished.kind == "yes" else answer))


def _names_large_number(query: Query) -> bool:
    """Whether a literal of the query is, or spells, a number of more than the size LARGE."""
    found = []

    def visit(node):
        if isinstance(node, Constant) and node.value is not None:
            value = compute(NUMERIC_AFFINITY, (node.value,))
            found.append(isinstance(value, int | float) and abs(value) > LARGE)
        return node

    rebuilt(query, visit)
    return any(found)


def with_parents(catalog: Catalog, names: set[str]) -> set[str]:
    """The tables with those that their foreign keys refer to, and so on."""
    names, stack = set(names), list(names)
    while stack:
        for foreign in catalog.table(stack.pop()).foreign_keys:
            parent = fold(foreign.other_table)
            if parent not in names and catalog.table(parent) is not None:
                names.add(parent)
                stack.append(parent)
    return names
