"""What goes to z3 leaves room for whatever SQLite does: no real database is ruled out."""

import random
import sqlite3
import time

import pytest
from interpreting import Encoding
from querying import fill, random_query, random_rows, random_schema

from jax_t2sql.equivalence.catalog import read_catalog
from jax_t2sql.equivalence.symbolic.errors import Unsupported
from jax_t2sql.equivalence.symbolic.opaque import compute
from jax_t2sql.equivalence.symbolic.solving import Question
from jax_t2sql.equivalence.symbolic.terms import Terms, TooLarge
from jax_t2sql.equivalence.symbolic.values import (
    BLOB_LOW,
    TEXT_LOW,
    constant,
    constant_value,
    key_of,
    value_of,
)

_SEEDS = 80
_SLICES = 4


@pytest.mark.parametrize("part", range(_SLICES))
def test_a_real_database_and_its_answer_are_possible(part):
    asked = 0
    for seed in range(1000 + part, 1000 + _SEEDS, _SLICES):
        rng = random.Random(seed)
        schema = random_schema(rng)
        sql = random_query(rng, schema)
        try:
            encoding = Encoding(sql, read_catalog(schema.ddl), bound=2, max_rows=64)
        except (Unsupported, TooLarge):
            continue
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.executescript(schema.ddl)
        fill(connection, random_rows(rng, schema, 2))
        reading = encoding.on(connection)
        try:
            facts = reading.facts
        except Unsupported:  # a function fails on a branch that is not taken
            continue
        connection.close()
        question = Question(encoding.constraints, time.thread_time() + 20)
        assert question.ask(*facts).kind == "yes", (seed, sql)
        # And the answer is the only one: what was claimed cannot be otherwise.
        t = encoding.terms
        claims = reading.claims
        assert question.ask(*facts, t.not_(t.and_(*claims))).kind == "no", (seed, sql)
        asked += 1
    assert asked > 0.5 * _SEEDS / _SLICES


def test_names_of_texts_and_blobs_keep_their_order():
    t = Terms()
    words = ["", " ", "A", "Z", "a", "aa", "b", "é", b"", b"a", b"b"]
    x = t.var("x", numeric=True, bounds=(TEXT_LOW, BLOB_LOW + 1))
    inside = t.within(x, TEXT_LOW, BLOB_LOW + 1)
    ordered = [t.number(key_of(word)) for word in words]
    for before, word, after in zip(ordered, ordered[1:], ordered[2:], strict=False):
        question = Question([inside, t.lt(before, x), t.lt(x, after)], time.thread_time() + 5)
        assert question.ask(t.eq(x, word)).kind == "yes"
        assert question.ask(t.lt(word, x)).kind == "yes"
        assert question.ask(t.lt(x, before)).kind == "no"


@pytest.mark.parametrize(
    "value",
    [None, 0, -5, 2**62, 0.5, -1e300, 1e19, float("inf"), "", "a", "né", "\x00", b"", b"\xff\x00"],
)
def test_values_survive_being_encoded(value):
    encoded = constant(Terms(), value)
    assert constant_value(encoded) == value and type(constant_value(encoded)) is type(value)


def test_keys_are_in_sqlites_order():
    values = [float("-inf"), -1e300, -(2.0**64), -(2**62), -1, -0.5, 0, 0.5, 1, 1.5, 2**53 + 1,
              2**62, 1e19, 1e300, float("inf"), "", "\x01", " ", "1", "A", "AA", "a", "é", b"",
              b"\x00", b"a"]  # fmt: skip
    keys = [key_of(value) for value in values]
    assert keys == sorted(keys) and len(set(keys)) == len(keys)
    for a, b in zip(values, values[1:], strict=False):
        assert compute("? < ?", (a, b)) == 1
    assert all(value_of(False, key_of(v), isinstance(v, float)) == v for v in values)
