"""Gold queries that leave part of their answer to chance: ties, and NULLs that sort first."""

from collections.abc import Callable
from dataclasses import dataclass

from jax_t2sql.sql.modes import Mode
from jax_t2sql.sql.outcome import Outcome
from jax_t2sql.sql.schema import fold
from jax_t2sql.sql.tokens import Token, significant, split_statement

_AFTER_TERM = ("ASC", "DESC", "COLLATE", "NULLS")


@dataclass(frozen=True)
class Ordering:
    """The top-level ORDER BY of a query, and its LIMIT.

    Attributes:
      revealing: the query with its sort keys as further columns and without its LIMIT.
      keys: how many sort keys there are.
      ascending: whether the first key sorts upwards with NULLs where SQLite puts them: first.
      start, stop: which rows the LIMIT keeps; stop is None without one.
    """

    revealing: str
    keys: int
    ascending: bool
    start: int = 0
    stop: int | None = None


def order_warnings(
    sql: str, gold: Outcome, mode: Mode, run: Callable[[str], Outcome]
) -> tuple[str, ...]:
    """What about the order of a gold query may make a right answer look wrong.

    Args:
      sql: the gold query, and `gold`: what it gives.
      mode: the grading mode: only under "list" does the order of tied rows count.
      run: runs one more query on the same database. Called at most once.

    Returns: a sentence each for ties cut by the LIMIT, ties whose order counts, and an answer that
      begins with NULL keys. Nothing where the query's shape is beyond what is looked into here
      (compound queries, DISTINCT, sort keys given by number).
    """
    ordering = read_ordering(sql)
    if ordering is None:
        return ()
    revealed = run(ordering.revealing)
    if not revealed.ok or len(revealed.columns) != len(gold.columns) + ordering.keys:
        return ()
    width = len(gold.columns)
    rows = [(row[:width], row[width:]) for row in revealed.rows]
    kept = rows[ordering.start : ordering.stop]
    if [row for row, _ in kept] != list(map(tuple, gold.rows)):
        return ()  # the rewriting has changed the query
    warnings = []
    for cut in (ordering.start, ordering.stop):
        if cut and cut < len(rows) and _tied(rows[cut - 1], rows[cut]):
            warnings.append(
                f"LIMIT cuts between rows {cut} and {cut + 1}, which tie by the ORDER BY: which of"
                " them belongs to the answer is chance; add a sort key, or grade with subset"
            )
    if mode.kind == "list" and any(map(_tied, kept, kept[1:])):
        warnings.append(
            "the answer has different rows that tie by the ORDER BY: their order is chance, and"
            " counts; add a sort key, or grade with multiset"
        )
    if kept and ordering.ascending and kept[0][1][0] is None and len(rows) > len(kept):
        warnings.append(
            "the rows that come first have NULL to sort by (SQLite sorts NULL before all values):"
            " a question for the least hardly means them; add IS NOT NULL"
        )
    return tuple(warnings)


def _tied(a: tuple[tuple, tuple], b: tuple[tuple, tuple]) -> bool:
    """Whether two rows have the same keys but differ in what is shown."""
    return a[1] == b[1] and a[0] != b[0]


def read_ordering(sql: str) -> Ordering | None:
    """The top-level ordering of a simple SELECT, None where there is none or it is not simple."""
    statement = split_statement(sql)[0]
    tokens = significant(statement)
    top = [token for token, depth in _with_depth(tokens) if depth == 0]
    words = {name: [t for t in top if t.is_word(name)] for name in
             ("SELECT", "FROM", "ORDER", "LIMIT", "UNION", "INTERSECT", "EXCEPT")}  # fmt: skip
    if any(words[name] for name in ("UNION", "INTERSECT", "EXCEPT")):
        return None
    if not (len(words["SELECT"]) == len(words["FROM"]) == len(words["ORDER"]) == 1):
        return None
    (select,), (source,), (order,) = words["SELECT"], words["FROM"], words["ORDER"]
    by = next((t for t in top if t.start > order.start), None)
    following = next((t for t in top if t.start > select.start), None)
    if not select.start < source.start < order.start or following.is_word("DISTINCT"):
        return None
    if by is None or not by.is_word("BY"):
        return None
    limit = words["LIMIT"][0] if words["LIMIT"] else None
    end = limit.start if limit else len(statement)
    terms = _terms([t for t in tokens if by.start < t.start < end])
    bounds = _bounds([t for t in top if limit and t.start > limit.start]) if limit else (0, None)
    if not terms or bounds is None:
        return None
    named = _aliases(
        statement, _terms([t for t in tokens if select.start < t.start < source.start])
    )
    keys = [statement[term[0].start : _key_end(term)] for term in terms]
    keys = [named.get(fold(key.strip('"`[]')), key) for key in keys]
    if any(key.isdigit() for key in keys):
        return None
    revealing = (
        f"{statement[: source.start]}, {', '.join(keys)} {statement[source.start : end].rstrip()}"
    )
    first = terms[0]
    ascending = not any(t.is_word("DESC", "NULLS") for t in first)
    return Ordering(revealing, len(keys), ascending, *bounds)


def _aliases(statement: str, items: list[list[Token]]) -> dict[str, str]:
    """The expressions that a select list names with AS, by folded name."""
    return {
        fold(item[-1].value): statement[
            item[1 if item[0].is_word("ALL") else 0].start : item[-3].stop
        ]
        for item in items
        if len(item) > 2 and item[-2].is_word("AS")
    }


def _with_depth(tokens: list[Token]) -> list[tuple[Token, int]]:
    """Each token with the number of parentheses around it; an opening one is outside its own."""
    depth, result = 0, []
    for token in tokens:
        depth -= token.text == ")"
        result.append((token, depth))
        depth += token.text == "("
    return result


def _terms(tokens: list[Token]) -> list[list[Token]]:
    terms: list[list[Token]] = [[]]
    for token, depth in _with_depth(tokens):
        if depth == 0 and token.text == ",":
            terms.append([])
        else:
            terms[-1].append(token)
    return terms if all(terms) else []


def _key_end(term: list[Token]) -> int:
    """Index in the statement after a term's expression, before ASC, DESC, COLLATE and NULLS."""
    for i, (token, depth) in enumerate(_with_depth(term)):
        if i and depth == 0 and token.is_word(*_AFTER_TERM):
            return term[i - 1].stop
    return term[-1].stop


def _bounds(after: list[Token]) -> tuple[int, int] | None:
    """First row and the one after the last of LIMIT n, LIMIT n OFFSET m or LIMIT m, n."""
    numbers = [int(t.text) for t in after if t.kind == "number" and t.text.isdigit()]
    shape = [t.text.upper() for t in after if t.kind != "number"]
    if len(numbers) + len(shape) != len(after):
        return None
    match numbers, shape:
        case [count], []:
            return 0, count
        case [count, start], ["OFFSET"]:
            return start, start + count
        case [start, count], [","]:
            return start, start + count
    return None
