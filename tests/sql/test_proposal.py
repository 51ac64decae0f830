"""A mode is proposed by what the question asks, not by the gold query alone."""

import json

import pytest

from jax_t2sql.sql import asks_for_order, is_ordered, propose_mode

ORDERED = "SELECT name FROM t ORDER BY age"


@pytest.mark.parametrize(
    "question",
    [
        "Show all names ordered by age.",
        "List the names in ascending order of age.",
        "List the names sorted by age",
        "What are the names, in alphabetical order?",
        "Names in order of age, please",
        "Show the names from the oldest to the youngest.",
        "List names alphabetically",
        "Give the names in descending age.",
        "Order the names by how old they are.",
        "Rank the singers by age.",
        "Show name, country for all singers ordered by age from the oldest to the youngest.",
    ],
)
def test_an_order_that_is_asked_for(question):
    assert asks_for_order(question)
    assert propose_mode(ORDERED, question).kind == "list"
    assert propose_mode("SELECT name FROM t", question).kind == "set"
    assert propose_mode(ORDERED + " LIMIT 1;", question).kind == "set"
    assert propose_mode(ORDERED + " LIMIT 10", question).kind == "list"


@pytest.mark.parametrize(
    "question",
    [
        "Who are the three oldest singers?",
        "How many orders did each customer place?",
        "What is the order number of the oldest?",
        "Which customers did not order anything?",
        "List the orders by customer 5.",
        "In order to graduate, which courses are needed?",
        "",
    ],
)
def test_no_order_is_asked_for(question):
    assert propose_mode(ORDERED, question).kind == "set"


def test_on_real_questions(data_dir):
    """Of the golds that are ordered and keep more than one row, most are asked to be."""
    asked = unasked = surplus = 0
    with open(data_dir / "spider_dev" / "questions.jsonl", encoding="utf-8") as file:
        for row in map(json.loads, file):
            if is_ordered(row["SQL"]) and "limit" not in row["SQL"].lower():
                asked += asks_for_order(row["question"])
                unasked += not asks_for_order(row["question"])
            elif not is_ordered(row["SQL"]):
                surplus += asks_for_order(row["question"])
    assert asked > 5 * unasked
    assert surplus < 20
