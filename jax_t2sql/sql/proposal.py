"""Which grading mode a question seems to call for. A proposal for people to look over."""

import re

from jax_t2sql.sql.modes import Mode
from jax_t2sql.sql.shape import is_ordered
from jax_t2sql.sql.tokens import significant, split_statement

_ORDER = re.compile(
    r"""
    \b(?:
      sort(?:ed|ing)? | alphabetic(?:al|ally) | chronologic(?:al|ally) | lexicographic(?:al|ally)
    | (?:in\ )?(?:ascending | descending | increasing | decreasing) | rank(?:ed)?\ (?:by|them|the)
    | in\ (?:the\ |an?\ |reverse\ )*(?:\w+\ )?order\b(?!\ to\b)
    | order(?:ed|ing)?\ (?:\w+\ ){0,4}?by
    | order\ (?:them|the\ \w+|it|these|those)
    | from\ (?:the\ )?(?:\w+est|most|least|youngest|high|low|old|new|early|late|A|small|large)
      \ (?:\w+\ )?to\ (?:the\ )?(?:\w+est|most|least|low|high|new|old|late|early|Z|large|small)
    )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def asks_for_order(question: str) -> bool:
    """Whether a question in English asks for rows in an order.

    >>> asks_for_order("Show all singers, ordered by age from the oldest to the youngest.")
    True
    >>> asks_for_order("What is the order number of the oldest singer?")
    False
    """
    return bool(_ORDER.search(question))


def propose_mode(gold_sql: str, question: str) -> Mode:
    """ "list" where the gold query is ordered at its top level, by request; else "set".

    A LIMIT 1 leaves nothing to order. Most other golds with ORDER BY ask for the top few, whose
    order the question leaves open.
    """
    if is_ordered(gold_sql) and asks_for_order(question) and not _one_row(gold_sql):
        return Mode("list")
    return Mode("set")


def _one_row(sql: str) -> bool:
    tokens = significant(split_statement(sql)[0])
    return len(tokens) > 1 and tokens[-2].is_word("LIMIT") and tokens[-1].text == "1"
