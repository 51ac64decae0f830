"""The symbolic rows of a query on a database that is known: what the formula says it gives.

Uninterpreted functions stand for SQLite's own here, so that every part of the formula has a value.
"""

import sqlite3
import time
from collections import Counter

from jax_t2sql.equivalence.catalog import Catalog
from jax_t2sql.equivalence.symbolic.confirming import confirm
from jax_t2sql.equivalence.symbolic.context import Context, Env
from jax_t2sql.equivalence.symbolic.ir import Query
from jax_t2sql.equivalence.symbolic.limits import Ordering
from jax_t2sql.equivalence.symbolic.opaque import interpret
from jax_t2sql.equivalence.symbolic.proving import with_parents
from jax_t2sql.equivalence.symbolic.reading import read
from jax_t2sql.equivalence.symbolic.relations import rows_of
from jax_t2sql.equivalence.symbolic.solving import operands
from jax_t2sql.equivalence.symbolic.tables import constraints, unknown_tables
from jax_t2sql.equivalence.symbolic.terms import Term, Terms
from jax_t2sql.equivalence.symbolic.values import Val, key_of, value_of
from jax_t2sql.equivalence.symbolic.walking import tables_of
from jax_t2sql.sql.schema import fold, quote_identifier


class Encoding:
    """A query's symbolic rows, to be looked at on one database after another."""

    def __init__(self, sql: str, catalog: Catalog, *, bound: int, max_rows: int = 300) -> None:
        """Raises Unsupported where no proof would be tried."""
        query: Query = read(sql, catalog)
        confirm(sql, query, catalog)
        self.catalog, self.query = catalog, query
        self.terms = t = Terms(limit=150_000)
        names = sorted(with_parents(catalog, tables_of(query)))
        self.tables = unknown_tables(t, catalog, names, bound)
        deadline = time.thread_time() + 5
        ctx = Context(t, self.tables, rows_of, max_rows=max_rows, deadline=deadline)
        self.rows = rows_of(ctx, query, Env({}, t.true))
        self.doubt = t.or_(*ctx.doubts)
        self.constraints = constraints(t, catalog, self.tables)
        ordering = Ordering(ctx, query)
        keys = [ordering.fold(row.keys) for row in self.rows]
        self.places = [
            t.count(
                t.and_(other.present, ordering.before(keys[j], keys[i]))
                for j, other in enumerate(self.rows)
                if i != j
            )
            for i in range(len(self.rows))
        ]

    def on(self, connection: sqlite3.Connection) -> "Reading":
        """What it says of a database, whose tables have no more rows than the bound."""
        return Reading(self, assignment(self.catalog, self.tables, connection))


class Reading:
    """What an encoding says of one database."""

    def __init__(self, encoding: Encoding, known: dict[str, object]) -> None:
        self._values: dict[int, object] = {}
        self._known = known
        self._encoding = encoding

    @property
    def in_doubt(self) -> bool:
        """Whether the answer is said to be left to chance."""
        return self.value(self._encoding.doubt)

    @property
    def broken(self) -> list[Term]:
        """Constraints of the schema that the database is said to break."""
        return [c for c in self._encoding.constraints if not self.value(c)]

    @property
    def placed(self) -> dict[int, Counter]:
        """The rows by the number of rows that must come before them."""
        result: dict[int, Counter] = {}
        for row, place in zip(self._encoding.rows, self._encoding.places, strict=True):
            if self.value(row.present):
                cells = tuple(typed(self.cell(cell)) for cell in row.cells)
                result.setdefault(int(self.value(place)), Counter())[cells] += 1
        return result

    @property
    def facts(self) -> list[Term]:
        """That the tables hold what they hold, and that functions give what they give."""
        t, result = self._encoding.terms, []
        stack, seen = [*self._roots], set()
        while stack:
            term = stack.pop()
            if term.id in seen:
                continue
            seen.add(term.id)
            stack += operands(term)
            if term.op in ("var", "whole", "uf") and not self._is_key_of_null(term):
                result.append(self._equation(t, term))
        return result

    def _is_key_of_null(self, term: Term) -> bool:
        """Whether it is a function's key where the function gives NULL: it means nothing."""
        part, _, function = term.args[0].partition(":")
        if term.op != "uf" or part != "key":
            return False
        return interpret(f"null:{function}", [self.value(arg) for arg in term.args[1:]])

    @property
    def claims(self) -> list[Term]:
        """That the result is what it is said to be."""
        return [self._equation(self._encoding.terms, term) for term in self._roots]

    @property
    def _roots(self) -> list[Term]:
        rows = self._encoding.rows
        result = [row.present for row in rows]
        for row in rows:
            if self.value(row.present):
                for cell in row.cells:
                    result += [cell.null] if self.value(cell.null) else [cell.null, cell.key]
        return result

    def _equation(self, t: Terms, term: Term) -> Term:
        value = self.value(term)
        if term.numeric:
            return t.eq(term, t.number(value))
        return term if value else t.not_(term)

    def cell(self, v: Val):
        null = self.value(v.null)
        return value_of(null, 0 if null else self.value(v.key), not null and self.value(v.real))

    def value(self, root: Term):
        values, stack = self._values, [root]
        while stack:
            term = stack[-1]
            if term.id in values:
                stack.pop()
                continue
            missing = [arg for arg in operands(term) if arg.id not in values]
            if term.op == "ite" and term.args[0].id in values:  # the branch not taken may fail
                taken = term.args[1] if values[term.args[0].id] else term.args[2]
                missing = [] if taken.id in values else [taken]
            elif term.op == "ite":
                missing = [term.args[0]]
            if missing:
                stack += missing
                continue
            values[term.id] = self._evaluate(term, values)
            stack.pop()
        return values[root.id]

    def _evaluate(self, term: Term, values: dict):
        match term.op:
            case "const":
                return term.value
            case "var" | "whole":
                return self._known[term.args[0]]
            case "not":
                return not values[term.args[0].id]
            case "and":
                return all(values[a.id] for a in term.args)
            case "or":
                return any(values[a.id] for a in term.args)
            case "ite":
                test, yes, no = term.args
                return values[yes.id] if values[test.id] else values[no.id]
            case "eq":
                return values[term.args[0].id] == values[term.args[1].id]
            case "lt":
                return values[term.args[0].id] < values[term.args[1].id]
            case "within":
                return term.args[1] <= values[term.args[0].id] <= term.args[2]
            case "sum":
                return term.args[0] + sum(f * values[part.id] for f, part in term.args[1:])
            case "uf":
                return interpret(term.args[0], [values[a.id] for a in term.args[1:]])
        raise AssertionError(term.op)


def assignment(catalog: Catalog, tables, connection: sqlite3.Connection) -> dict[str, object]:
    """The variables of unknown tables, as a database has them."""
    known: dict[str, object] = {}
    for name, rows in tables.items():
        table = catalog.table(name)
        stored = connection.execute(f"SELECT * FROM {quote_identifier(table.name)}").fetchall()
        assert len(stored) <= len(rows)
        for i in range(len(rows)):
            known[f"{name}[{i}]"] = i < len(stored)
            values = stored[i] if i < len(stored) else (None,) * len(table.columns)
            for column, value in zip(table.columns, values, strict=True):
                cell = f"{name}[{i}].{fold(column.name)}"
                known[f"{cell}?"] = value is None
                known[f"{cell}!"] = isinstance(value, float)
                low = 2**65 if column.affinity == "TEXT" else 0
                known[cell] = low if value is None else key_of(value)
    return known


def typed(value):
    """A value told apart from an equal one of another type."""
    return type(value).__name__, round(value, 9) if isinstance(value, float) else value


def given(connection: sqlite3.Connection, sql: str, places: dict[int, Counter]) -> dict:
    """SQLite's rows, cut where the encoding says that a new place begins."""
    rows = [tuple(map(typed, row)) for row in connection.execute(sql)]
    starts = sorted(places)
    if not starts:
        return {0: Counter(rows)} if rows else {}
    ends = [*starts[1:], max(len(rows), starts[-1] + 1)]
    return {a: Counter(rows[a:b]) for a, b in zip(starts, ends, strict=True)}
