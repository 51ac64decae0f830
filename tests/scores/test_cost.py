import doctest
import json

import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.scores import cost as module
from jax_t2sql.scores.cost import cost, read_prices


@pytest.fixture(scope="module")
def answers(answer):
    tokens = {"prompt_tokens": 1000, "completion_tokens": 100, "cached_tokens": 400, "seconds": 2}
    rows = [answer(f"q{i}", "SELECT 1", candidate=c, **tokens) for i in range(5) for c in (0, 1)]
    return [*rows, answer("q5", None)]


@pytest.fixture
def table(tmp_path):
    def write(value):
        path = tmp_path / "prices.json"
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path

    return write


def test_dollars_of_tokens(answers, table):
    prices = table({"read": "2026-11-01", "models": {"m": {"input": 2, "cached": 1, "output": 10}}})
    found = cost(answers, 4, model="m", prices=prices)
    assert (found["prompt_tokens"], found["cached_tokens"], found["completion_tokens"]) == (
        10_000,
        4_000,
        1_000,
    )
    dollars = (6_000 * 2 + 4_000 * 1 + 1_000 * 10) / 1e6
    assert found["dollars"] == pytest.approx(dollars)
    assert found["dollars_per_question"] == pytest.approx(dollars / 6)
    assert found["dollars_per_1000_correct"] == pytest.approx(1000 * dollars / 4)
    assert (found["questions"], found["answers"], found["tokens_known_of"]) == (6, 11, 10)
    assert found["seconds"] == 20 and "2026-11-01" in found["priced_by"]


def test_input_that_has_no_cached_price_costs_the_same(answers, table):
    prices = table({"models": {"m": {"input": 2, "output": 0}}})
    assert cost(answers, 1, model="m", prices=prices)["dollars"] == pytest.approx(0.02)


def test_device_hours_count_instead(answers):
    found = cost(answers, 4, model="gpt-5.5", device_hours=0.5, device_hour_price=3.0)
    assert found["dollars"] == 1.5 and found["dollars_per_1000_correct"] == 375
    assert found["priced_by"] == "0.5 device-hours at $3"


def test_what_is_unknown_is_said(answers, answer):
    found = cost(answers, 4, model="my-own")
    assert found["dollars"] is None is found["dollars_per_question"]
    assert "no price of 'my-own' is known; give --prices" in found["priced_by"]
    silent = cost([answer("q", "SELECT 1")], 1, model="gpt-5.5")
    assert silent["dollars"] is None and "do not tell their tokens" in silent["priced_by"]
    assert cost([], 0, model="gpt-5.5")["dollars_per_question"] is None
    assert cost(answers, 0, model="gpt-5.5")["dollars_per_1000_correct"] is None


def test_every_price_of_the_package_has_a_date_and_a_source():
    prices = read_prices()
    assert prices and all(p.of[:4].isdigit() and p.source and p.output for p in prices.values())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[", "no price table"),
        ("[]", "no price table"),
        ('{"models": {"m": 3}}', "no price table"),
        ('{"models": {"m": {"input": -1, "output": 1}}}', "input of 'm' is -1"),
        ('{"models": {"m": {"input": 1}}}', "output of 'm' is None"),
        ('{"models": {"m": {"input": NaN, "output": 1}}}', "input of 'm' is nan"),
    ],
)
def test_a_bad_table_is_a_user_error(table, text, told):
    with pytest.raises(UserError, match=told):
        read_prices(table(text))


def test_bad_options_are_user_errors(answers, tmp_path):
    with pytest.raises(UserError, match="needs --device-hours"):
        cost(answers, 1, device_hour_price=2.0)
    with pytest.raises(UserError, match="--device-hours is -1"):
        cost(answers, 1, device_hours=-1.0)
    with pytest.raises(UserError, match="cannot be read"):
        read_prices(tmp_path / "none.json")


def test_the_examples_in_the_docstrings():
    assert doctest.testmod(module).failed == 0
