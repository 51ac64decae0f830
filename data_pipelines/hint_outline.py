"""Hints drafted from the gold query alone: its tables, its columns, its steps, in plain words.

No model is needed, so anybody can have hints for any questions. Values are left out: a question
names those that matter.
"""

from collections.abc import Iterable

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from jax_t2sql.hints import Strength

_AGGREGATES = {
    exp.Count: "the count",
    exp.Sum: "the sum",
    exp.Avg: "the average",
    exp.Min: "the lowest",
    exp.Max: "the highest",
}


def outline(sql: str, strength: Strength) -> str:
    """A hint; "" for a query that cannot be read or reads no table.

    light: the tables. medium: the columns too, and which kinds of steps. strong: the steps.

    >>> sql = "SELECT name FROM film WHERE year > 1990 ORDER BY year DESC LIMIT 1"
    >>> outline(sql, "light")
    'Use the table film.'
    >>> outline(sql, "medium")
    'Use the table film. Columns that matter: name and year. Steps: filter, sort, cut.'
    >>> outline(sql, "strong")
    'Use the table film. Keep rows by year. Sort by year, highest first, and cut. Give name.'
    """
    try:
        tree = sqlglot.parse_one(sql, read="sqlite")
    except SqlglotError:
        return ""
    defined = {cte.alias_or_name.lower() for cte in tree.find_all(exp.CTE)}
    tables = _unique(t.name for t in tree.find_all(exp.Table) if t.name.lower() not in defined)
    if not tables:
        return ""
    noun = "table" if len(tables) == 1 else "tables"
    parts = [f"Use the {noun} {_listed(tables)}."]
    if strength == "medium":
        parts += _columns_and_kinds(tree)
    elif strength == "strong":
        parts += _steps(tree, joined=len(tables) > 1)
    return " ".join(parts)


def _columns_and_kinds(tree: exp.Expression) -> list[str]:
    columns = _unique(column.name for column in tree.find_all(exp.Column))
    kinds = {
        "join": exp.Join,
        "filter": exp.Where,
        "group": exp.Group,
        "filter groups": exp.Having,
        "combine queries": exp.SetOperation,
        "use a query inside": exp.Subquery,
        "remove repeats": exp.Distinct,
        "sort": exp.Order,
        "cut": exp.Limit,
    }
    found = [name for name, kind in kinds.items() if tree.find(kind)]
    parts = [f"Columns that matter: {_listed(columns)}."] if columns else []
    return [*parts, f"Steps: {', '.join(found)}."] if found else parts


def _steps(tree: exp.Expression, *, joined: bool) -> list[str]:
    steps = ["Join them."] if joined and tree.find(exp.Join) else []
    if tree.find(exp.SetOperation):
        steps.append("Combine the results of several queries.")
    select = tree.find(exp.Select)
    if select is None:
        return steps
    for key, sentence in (
        ("where", "Keep rows by {}."),
        ("group", "Group by {}."),
        ("having", "Then keep groups by {}."),
    ):
        clause = select.args.get(key)
        if clause is not None and (said := _said(clause)):
            steps.append(sentence.format(said))
    if tree.find(exp.Subquery) or len(list(tree.find_all(exp.Select))) > 1:
        steps.append("A query inside the query finds a value to compare with.")
    if (order := select.args.get("order")) is not None:
        falling = bool(order.expressions and order.expressions[0].args.get("desc"))
        cut = ", and cut" if select.args.get("limit") else ""
        steps.append(f"Sort by {_said(order)}, {'highest' if falling else 'lowest'} first{cut}.")
    outputs = _unique(_said(expression) for expression in select.expressions)
    if said := _listed([output for output in outputs if output]):
        once = ", each once" if select.args.get("distinct") else ""
        steps.append(f"Give {said}{once}.")
    return steps


def _said(node: exp.Expression) -> str:
    """Columns and aggregates of a clause, in words."""
    said = []
    for inner in node.find_all(exp.Column, *_AGGREGATES, bfs=False):
        if type(inner) in _AGGREGATES:
            columns = _unique(column.name for column in inner.find_all(exp.Column))
            said.append(
                " of ".join([_AGGREGATES[type(inner)], *([_listed(columns)] * bool(columns))])
            )
        elif not inner.find_ancestor(*_AGGREGATES):
            said.append(inner.name)
    return _listed(_unique(said))


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _listed(names: list[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
