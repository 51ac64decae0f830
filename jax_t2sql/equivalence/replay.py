"""Replay of a counterexample: a fresh database, the declared constraints, both texts as given.

Nothing is called refuted that has not come through here.
"""

import sqlite3
from contextlib import closing
from dataclasses import dataclass

from jax_t2sql.equivalence.arena import Arena, only_statement
from jax_t2sql.equivalence.catalog import Catalog, Rows
from jax_t2sql.equivalence.storing import literal
from jax_t2sql.equivalence.verdict import Answer
from jax_t2sql.sql.compare import results_equal
from jax_t2sql.sql.modes import Mode
from jax_t2sql.sql.schema import quote_identifier


@dataclass(frozen=True)
class Refutation:
    """A difference that has been replayed.

    Attributes:
      database: the script; gold, pred: what the two queries give on it.
    """

    database: str
    gold: Answer
    pred: Answer


def confirm(catalog: Catalog, rows: Rows, gold: str, pred: str, mode: Mode) -> Refutation | str:
    """Replays a database.

    Args:
      rows: by table name; tables that are left out are empty.

    Returns: the refutation, or in a sentence why there is none: a constraint is broken, a query
      fails, or the results are equal.
    """
    script = as_script(catalog, rows)
    broken = violation(script)
    if broken:
        return f"the database found breaks a constraint: {broken}"
    statements = []
    for name, sql in (("gold", gold), ("predicted", pred)):
        statement, refused = only_statement(sql)
        if refused:
            return f"the {name} query cannot be run: {refused}"
        statements.append(statement)
    with Arena(script, ()) as arena:
        answers = []
        for name, statement in zip(("gold", "predicted"), statements, strict=True):
            found = arena.run(statement)
            if found is None:
                return f"the {name} query fails on the database found: {arena.error}"
            answers.append(Answer(arena.columns(statement), tuple(found)))
    if results_equal(answers[0].rows, answers[1].rows, mode):
        return "the two queries give equal results on the database found"
    return Refutation(script, *answers)


def as_script(catalog: Catalog, rows: Rows) -> str:
    """SQL that creates a database with these rows; columns that are NULL throughout go unnamed."""
    lines = [catalog.ddl]
    for table in catalog.tables:
        kept = rows.get(table.name)
        if not kept:
            continue
        told = [
            (place, quote_identifier(column.name))
            for place, column in enumerate(table.stored)
            if column.default is not None or any(row[place] is not None for row in kept)
        ] or [(0, quote_identifier(table.stored[0].name))]
        head = f"INSERT INTO {quote_identifier(table.name)} ({', '.join(n for _, n in told)})"
        for row in kept:
            values = ", ".join(literal(row[place]) for place, _ in told)
            lines.append(f"{head} VALUES ({values});\n")
    return "".join(lines)


def violation(script: str) -> str:
    """What SQLite has against a database: its words, "" if nothing."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        try:
            connection.executescript(script)
            faults = connection.execute("PRAGMA foreign_key_check").fetchall()
        except (sqlite3.Error, UnicodeEncodeError) as error:
            return str(error)
    if faults:
        return f"a row of {faults[0][0]} refers to a missing row of {faults[0][2]}"
    return ""
