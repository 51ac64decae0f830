"""Lines of external knowledge that go with a question: what its words mean in the database."""

from __future__ import annotations

import re

from data_pipelines.onedb.columns import Column
from data_pipelines.onedb.conditions import Condition, identifier, literal
from data_pipelines.onedb.joins import Edge
from data_pipelines.onedb.live import Live
from data_pipelines.onedb.pool import Question
from data_pipelines.onedb.words import value_text


def evidence_lines(question: Question, live: Live) -> list[str]:
    """One line for each condition, one for how the tables join; as BIRD words them.

    ['height over 180 refers to superhero.height_cm > 180']
    """
    lines = [_condition_line(condition, live) for condition in question.draft.conditions]
    joined = question.draft.path
    if joined:
        lines += join_sentences(live, question.draft.sql)
    return list(dict.fromkeys(line for line in lines if line))


def _condition_line(condition: Condition, live: Live) -> str:
    words = live.legend.column(*condition.column.key)
    ref = f"{identifier(condition.column.table)}.{identifier(condition.column.name)}"
    told = condition.sql(ref)
    if condition.op == "equal":
        meaning = words.values.get(str(condition.values[0]))
        return f"{meaning or value_text(condition.values[0])} refers to {told}".replace(";", ",")
    said = condition.predicate(live).removeprefix("is ")
    return f"{words.noun} {said} refers to {told}".replace(";", ",")


def join_sentences(live: Live, sql: str | None = None) -> list[str]:
    """A sentence for each foreign key, of those alone whose tables a query uses if one is given."""
    lines = []
    for edge in live.edges:
        if sql is not None and not _joins(sql, edge):
            continue
        pairs = " and ".join(
            f"{identifier(edge.child)}.{identifier(a)} = {identifier(edge.parent)}.{identifier(b)}"
            for a, b in zip(edge.child_columns, edge.parent_columns, strict=True)
        )
        role = live.legend.joins[edge.name].role
        lines.append(f"the {role} of {live.legend.tables[edge.child].noun} is joined on {pairs}")
    return lines


def _joins(sql: str, edge: Edge) -> bool:
    """Whether a query joins along a key, as far as its text tells."""
    if not all(f"{identifier(name)} AS " in sql for name in (edge.child, edge.parent)):
        return False
    return all(
        f".{identifier(a)} = T" in sql
        or re.search(rf"= T\d+\.{re.escape(identifier(a))}(?!\w)", sql)
        for a in edge.child_columns
    )


def _stored_values(column: Column, most: int) -> list[str]:
    """The values of a column that has few, as they are spelled; the most frequent of some more."""
    if column.distinct > len(column.values):  # more than the scan keeps
        return []
    shown = ", ".join(literal(value) for value, _ in column.values[:most])
    more = column.distinct - most
    return [f"stored values: {shown}" + (f" and {more} more" if more > 0 else "")]


def legend_lines(live: Live, *, most_values: int = 12) -> list[str]:
    """What a prompt may say of a whole database: purposes, meanings, stored values, joins."""
    lines = []
    for table in live.scan.tables:
        words = live.legend.tables[table.name]
        if words.purpose:
            lines.append(f"{table.name}: {words.purpose}")
        for column in table.columns:
            own = words.columns[column.name]
            parts = [own.meaning] if own.meaning else []
            if own.values:
                parts += [f"{literal(code)} means {said}" for code, said in own.values.items()]
            elif column.kind in ("category", "flag", "name"):
                parts += _stored_values(column, most_values)
            if parts:
                lines.append(f"{table.name}.{column.name}: {'; '.join(parts)}")
    return lines + join_sentences(live)


def question_legend(live: Live, evidence: str = "") -> str:
    """A question's own evidence and the whole legend, as one text of pieces."""
    lines = [line.replace(";", ",") for line in legend_lines(live)]
    return "; ".join([*([evidence] if evidence else []), *lines])
