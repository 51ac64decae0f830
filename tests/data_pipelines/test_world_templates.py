"""Questions as choices: SQL and English agree, rows leave no room for luck."""

import random
import re

import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipelines.templates import Choices, Filter, render_sql
from data_pipelines.templates_catalogue import TEMPLATES
from data_pipelines.templates_draw import draw, variants
from data_pipelines.templates_english import render_question
from data_pipelines.world_cinema import CINEMA
from data_pipelines.world_harbor import HARBOR
from data_pipelines.world_rows import table_rows
from data_pipelines.world_schema import Label, Number, Text

DATABASES = {database.db_id: database for database in (CINEMA, HARBOR)}
TABLES = [(database, table) for database in DATABASES.values() for table in database.tables]


def drawn(template, seed: int) -> Choices:
    rng = random.Random(seed)
    while True:
        try:
            return draw((CINEMA, HARBOR), template, rng)
        except LookupError:
            continue


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(TEMPLATES), st.integers(0, 10**6))
def test_question_and_sql_name_the_same_table_and_values(template, seed):
    choices = drawn(template, seed)
    database = DATABASES[choices.db_id]
    sql, question = render_sql(database, choices), render_question(database, choices)
    table = database.table(choices.table)
    assert f" FROM {table.name}" in sql
    assert re.search(rf"\b({table.singular}|{table.plural})\b", question)
    values = [str(value) for condition in choices.filters for value in condition.values]
    for value in values:
        assert re.search(rf"\b{value}\b", question)
        assert re.search(rf"\b{value}\b", sql)
    # sqlglot writes NOT x IS NULL for x IS NOT NULL.
    normal = sqlglot.parse_one(sql, dialect="sqlite").sql(dialect="sqlite")
    assert re.sub(r"NOT (\w+) IS NULL", r"\1 IS NOT NULL", normal) == sql
    assert re.fullmatch(r"[A-Z][A-Za-z0-9, ]+[.?]", question)
    assert "  " not in question


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(TEMPLATES), st.integers(0, 10**6))
def test_a_variant_is_another_query(template, seed):
    choices = drawn(template, seed)
    sql = render_sql(DATABASES[choices.db_id], choices)
    for variant in variants(choices):
        assert render_sql(DATABASES[choices.db_id], variant) != sql


@pytest.mark.parametrize(
    ("choices", "question", "sql"),
    [
        (
            Choices(
                template="list + equals + compare",
                db_id="cinema",
                table="films",
                head="list",
                filters=(
                    Filter("equals", "films", "genre", ("drama",)),
                    Filter("over", "films", "minutes", (120,)),
                ),
            ),
            "List the films of genre drama and longer than 120 minutes.",
            "SELECT title FROM films WHERE genre = 'drama' AND minutes > 120",
        ),
        (
            Choices(
                template="count + parent",
                db_id="harbor",
                table="ships",
                head="count",
                filters=(Filter("equals", "captains", "home", ("Malta",)),),
                of=1,
            ),
            "How many ships are there led by captains from Malta?",
            "SELECT COUNT(*) FROM ships JOIN captains USING (captain_id) WHERE home = 'Malta'",
        ),
        (
            Choices(
                template="top",
                db_id="cinema",
                table="studios",
                head="top",
                column="staff",
                descending=False,
                limit=3,
            ),
            "Which 3 studios have the fewest staff?",
            "SELECT studio FROM studios ORDER BY staff ASC LIMIT 3",
        ),
        (
            Choices(
                template="having",
                db_id="harbor",
                table="ships",
                head="having",
                column="home",
                grouping_table="captains",
                least=20,
            ),
            "Which homes have more than 20 ships?",
            "SELECT home FROM ships JOIN captains USING (captain_id) "
            "GROUP BY home HAVING COUNT(*) > 20",
        ),
        (
            Choices(
                template="count + average",
                db_id="harbor",
                table="captains",
                head="count",
                filters=(Filter("below_average", "captains", "pay"),),
                wording=1,
            ),
            "Count the captains with pay below average.",
            "SELECT COUNT(*) FROM captains WHERE pay < (SELECT AVG(pay) FROM captains)",
        ),
        (
            Choices(
                template="aggregate + year",
                db_id="cinema",
                table="films",
                head="aggregate",
                column="budget",
                function="MAX",
                filters=(Filter("year", "films", "released", (1998,)),),
            ),
            "What is the highest budget of films released in 1998?",
            "SELECT MAX(budget) FROM films WHERE STRFTIME('%Y', released) = '1998'",
        ),
    ],
)
def test_known_questions(choices, question, sql):
    database = DATABASES[choices.db_id]
    assert render_question(database, choices) == question
    assert render_sql(database, choices) == sql


def test_a_filter_on_a_column_of_another_type_is_refused():
    choices = Choices(
        template="list + year",
        db_id="cinema",
        table="films",
        head="list",
        filters=(Filter("year", "films", "genre", (1998,)),),
    )
    with pytest.raises(ValueError, match=r"'year' does not apply to films\.genre"):
        render_question(CINEMA, choices)


def test_columns_need_no_qualifier_and_tables_no_database():
    for database in DATABASES.values():
        names = [column.name for table in database.tables for column in table.columns]
        assert len(names) == len(set(names))
    nouns = [noun for _, table in TABLES for noun in (table.singular, table.plural)]
    assert len(nouns) == len(set(nouns))


def test_table_sizes_differ():
    sizes = [table.rows for _, table in TABLES]
    assert len(sizes) == len(set(sizes))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("database", "table"), TABLES, ids=[table.name for _, table in TABLES])
def test_rows_leave_no_room_for_luck(database, table, seed):
    parent = database.table(table.parent.table) if table.parent else None
    rows = table_rows(table, parent, random.Random(seed))
    assert len(rows) == table.rows
    for column in table.of_type(Number | Label):
        values = [row[column.name] for row in rows]
        assert len(values) == len(set(values)), column.name
    for column in table.of_type(Text):
        values = [row[column.name] for row in rows]
        sizes = [values.count(value) for value in column.values]
        assert len(sizes) == len(set(sizes)), column.name
        assert (None in values) == bool(column.null_share)
