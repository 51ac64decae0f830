"""The English of a question: a sentence of its head, with a phrase for every filter.

Every phrase has two or three wordings, so that a model must learn which words matter.
"""

from __future__ import annotations

from data_pipelines.templates import Choices, Filter
from data_pipelines.world_schema import Database, Date, Number, Table, Text

FUNCTIONS = {
    "AVG": ("average", "mean"),
    "SUM": ("total", "summed"),
    "MAX": ("highest", "maximum"),
    "MIN": ("lowest", "minimum"),
}
LIST_WORDINGS = (
    "List the {plural} {filters}.",
    "Which {plural} are there {filters}?",
    "Show all {plural} {filters}.",
)
COUNT_WORDINGS = (
    "How many {plural} are there {filters}?",
    "Count the {plural} {filters}.",
    "What is the number of {plural} {filters}?",
)
AGGREGATE_WORDINGS = (
    "What is the {function} {noun} of {plural} {filters}?",
    "Give the {function} {noun} of {plural} {filters}.",
    "Find the {function} {noun} for {plural} {filters}.",
)
DISTINCT_WORDINGS = (
    "List the different {nouns} of {plural} {filters}.",
    "Which different {nouns} do {plural} {filters} have?",
    "Show each {noun} once for {plural} {filters}.",
)
TOP_WORDINGS = (
    "Which {ranked} {filters} has the {order}?",
    "Show the {ranked} {filters} with the {order}.",
    "Find the {ranked} {filters} that has the {order}.",
)
GROUP_WORDINGS = (
    "For each {noun}, how many {plural} are there {filters}?",
    "Count the {plural} {filters} per {noun}.",
    "Show the number of {plural} {filters} by {noun}.",
)
HAVING_WORDINGS = (
    "Which {nouns} have more than {least} {plural} {filters}?",
    "List the {nouns} with more than {least} {plural} {filters}.",
    "Show each {noun} that has more than {least} {plural} {filters}.",
)
HEADS = {
    "list": LIST_WORDINGS,
    "count": COUNT_WORDINGS,
    "aggregate": AGGREGATE_WORDINGS,
    "distinct": DISTINCT_WORDINGS,
    "top": TOP_WORDINGS,
    "group": GROUP_WORDINGS,
    "having": HAVING_WORDINGS,
}


def _filter_phrase(table: Table, condition: Filter) -> str:
    column = table.column(condition.column)
    pick = condition.wording
    match condition.kind, column:
        case "equals", Text():
            return column.where[pick].format(v=condition.values[0])
        case "over", Number():
            return column.over[pick].format(v=condition.values[0])
        case "under", Number():
            return column.under[pick].format(v=condition.values[0])
        case "between", Number():
            return column.between[pick].format(low=condition.values[0], high=condition.values[1])
        case "year", Date():
            return column.year[pick].format(v=condition.values[0])
        case "missing", Text() | Date():
            return column.missing[pick]
        case "present", Text() | Date():
            return column.present[pick]
        case "above_average", Number():
            return ("with {n} above average", "with more than average {n}")[pick].format(
                n=column.noun
            )
        case "below_average", Number():
            return ("with {n} below average", "with less than average {n}")[pick].format(
                n=column.noun
            )
    raise ValueError(f"{condition.kind!r} does not apply to {table.name}.{column.name}")


def _filters_phrase(database: Database, choices: Choices) -> str:
    """The filters after the table's noun: its own, joined by "and", then its parent's."""
    table = database.table(choices.table)
    phrases = [
        _filter_phrase(table, condition)
        for condition in choices.filters
        if condition.table == table.name
    ]
    text = " and ".join(phrases)
    for condition in choices.filters:
        if condition.table != table.name:
            parent = database.table(condition.table)
            text += f" {table.parent.of[choices.of]} {_filter_phrase(parent, condition)}"
    return text.strip()


def render_question(database: Database, choices: Choices) -> str:
    """The English question for `choices`, one sentence."""
    table = database.table(choices.table)
    words = {"plural": table.plural, "filters": _filters_phrase(database, choices)}
    if choices.column is not None:
        column = database.table(choices.grouping_table or table.name).column(choices.column)
        words["noun"] = getattr(column, "noun", "")
        words["nouns"] = getattr(column, "plural", "")
    wording = choices.wording
    match choices.head:
        case "aggregate":
            words["function"] = FUNCTIONS[choices.function][wording % 2]
        case "having":
            words["least"] = str(choices.least)
        case "top":
            one = choices.limit == 1
            words["ranked"] = table.singular if one else f"{choices.limit} {table.plural}"
            orders = column.most if choices.descending else column.least
            words["order"] = orders[wording % 2]
    text = HEADS[choices.head][wording].format(**words)
    if choices.head == "top" and choices.limit > 1:
        text = text.replace(" has the ", " have the ").replace(" that has ", " that have ")
    # A question without filters leaves a gap where they would stand.
    return " ".join(text.split()).replace(" ?", "?").replace(" .", ".").replace(" ,", ",")
