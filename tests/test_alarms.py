"""Alarms on made-up runs: what they say, and what must not set them off."""

import pytest

from jax_t2sql.alarms import find_alarms
from jax_t2sql.bus import Outcome
from jax_t2sql.config import AlarmsConfig

CONFIG = AlarmsConfig(window=4)


def run(count, **values):
    """Steps of two groups of 10 rollouts each; every value is a function of the step."""

    def outcome(step):
        at = {name: value(step) if callable(value) else value for name, value in values.items()}
        filled = {"tokens": 1000, "solved": 4, "cut_off": 0, "broken": 0} | at
        return Outcome(rollouts=10, valid=10, **filled)

    return [(step, [outcome(step)] * 2) for step in range(count)]


def kinds(steps, config=CONFIG):
    return [alarm.kind for alarm in find_alarms(steps, config)]


def test_a_steady_run_gives_none():
    assert kinds(run(40)) == []
    assert kinds(run(40, broken=6)) == [], "what it never could is no collapse"


def test_answers_that_run_away_in_length():
    longer = run(24, tokens=lambda s: 1000 if s < 12 else 1000 + 250 * (s - 12), cut_off=2)
    (alarm,) = find_alarms(longer, CONFIG)
    assert (alarm.kind, alarm.step) == ("length", 24)
    assert "338 sampled tokens a rollout in steps 21 to 24, 100 in steps 1 to 4" in alarm.text
    assert "--prompt.max-tokens" in alarm.text and "3.4 times" in alarm.text
    assert "from 40% to 40%" in alarm.text and "from 20% to 20%" in alarm.text


def test_longer_answers_that_are_right_more_often_are_welcome():
    def tokens(step):
        return 1000 + 100 * step

    assert kinds(run(24, tokens=tokens)) == ["length"]
    assert kinds(run(24, tokens=tokens, solved=lambda s: 4 + s // 8)) == []


@pytest.mark.parametrize(
    ("field", "advice"), [("broken", "samples.jsonl"), ("cut_off", "--prompt.max-tokens")]
)
def test_a_format_that_collapses(field, advice):
    (alarm,) = find_alarms(run(20, **{field: lambda s: 1 if s < 12 else 8}), CONFIG)
    assert alarm.kind == "format" and advice in alarm.text
    assert "80% of rollouts end without an answer in steps 17 to 20" in alarm.text


def test_too_few_steps_say_nothing():
    collapsing = run(7, broken=lambda s: 0 if s < 4 else 10)
    assert kinds(collapsing) == [] and kinds(run(8, broken=lambda s: 0 if s < 4 else 10))


def test_alarms_can_be_off():
    steps = run(20, broken=lambda s: 0 if s < 10 else 10)
    assert kinds(steps) == ["format"]
    assert kinds(steps, AlarmsConfig(window=4, action="off")) == []


def test_steps_without_rollouts_are_passed_over():
    steps = run(20, broken=lambda s: 0 if s < 10 else 10)
    empty = [(99, [])]
    assert kinds([*steps[:10], *empty, *steps[10:], *empty]) == ["format"]
