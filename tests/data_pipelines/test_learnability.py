"""Weights, draws and cursor; and on a simulated learner: the share of groups with signal."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from data_pipelines.learnability import WeightedQuestions, signal_weight
from jax_t2sql.errors import UserError
from jax_t2sql.text2sql import Problem

GROUP = 16


def problems(count, source=""):
    return [
        Problem(
            question_id=f"{source}{i}", db_id="d", question=f"Q{i}", gold_sql="S", source=source
        )
        for i in range(count)
    ]


def stream(count=40, *, seed=1, floor=0.1, memory=0.7, **options):
    return WeightedQuestions(problems(count), seed=seed, floor=floor, memory=memory, **options)


def names(drawn):
    return [problem.question_id for problem in drawn]


@pytest.fixture(scope="module")
def simulation():
    path = Path(__file__).resolve().parent.parent / "bench" / "learnability.py"
    spec = importlib.util.spec_from_file_location("bench_learnability", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_weights_are_greatest_where_half_is_right_and_never_below_the_floor():
    curve = [signal_weight(k, GROUP - k, floor=0.1) for k in range(GROUP + 1)]
    assert curve == pytest.approx(curve[::-1]) and max(curve) == curve[GROUP // 2] <= 1
    assert all(a < b for a, b in zip(curve[:8], curve[1:9], strict=True))
    assert signal_weight(1000, 0, floor=0.1) == 0.1
    assert signal_weight(16, 0, floor=0.1) < signal_weight(2, 0, floor=0.1), "less is known"


def test_what_was_asked_long_ago_counts_less():
    drawn = stream(2, memory=0.5)
    for _ in range(4):
        drawn.observe("0", right=16, wrong=0)
    before = drawn.weights[0]
    drawn.observe("0", right=8, wrong=8)
    assert drawn.weights[1] == 1.0 and drawn.weights[0] > 2 * before
    drawn.observe("gone", right=1, wrong=1)


def test_a_draw_has_no_question_twice_and_leaves_busy_ones_out():
    drawn = stream(10)
    assert sorted(names(drawn.draw(10)), key=int) == [str(i) for i in range(10)]
    busy = {"1", "2", "3"}
    assert not busy & set(names(drawn.draw(7, busy=busy)))
    more = names(drawn.draw(25, busy=busy))
    assert len(more) == 25 and not busy & set(more[:7]) and set(more) >= busy


def test_draws_follow_the_weights():
    drawn = stream(100)
    for i in range(50):
        drawn.observe(str(i), right=GROUP, wrong=0)
    expected = drawn.weights[:50].sum() / drawn.weights.sum()
    got = [int(name) < 50 for _ in range(2000) for name in names(drawn.draw(1))]
    assert np.mean(got) == pytest.approx(expected, abs=0.03)


def test_a_restored_stream_draws_the_same():
    def outcomes(into):
        for i in range(0, 40, 3):
            into.observe(str(i), right=i % 17, wrong=16 - i % 17)

    first = stream()
    first.draw(5)
    outcomes(first)
    state = json.loads(json.dumps(first.state()))
    again = stream()
    again.restore(state)
    outcomes(again)
    assert [names(first.draw(4)) for _ in range(5)] == [names(again.draw(4)) for _ in range(5)]
    assert names(stream(seed=2).draw(9)) != names(stream(seed=1).draw(9))
    for other in (stream(seed=2), stream(41), stream(floor=0.2), stream(memory=0.1)):
        with pytest.raises(UserError, match="data cursor"):
            other.restore(state)


def test_shares_of_sources_are_kept():
    mixed = problems(60) + problems(20, source="b")
    drawn = WeightedQuestions(mixed, seed=0, floor=0.1, memory=0.7, shares={"b": 0.5})
    for i in range(60):
        drawn.observe(str(i), right=GROUP, wrong=0)  # weights differ between parts
    got = [name.startswith("b") for _ in range(2000) for name in names(drawn.draw(1))]
    assert np.mean(got) == pytest.approx(0.5, abs=0.04)
    with pytest.raises(UserError, match="no question is left of c"):
        WeightedQuestions(mixed, seed=0, floor=0.1, memory=0.7, shares={"c": 0.5})
    with pytest.raises(UserError, match="no questions"):
        stream(0)


def test_more_groups_have_signal_than_with_uniform_draws_or_solved_questions_dropped(simulation):
    uniform, dropped, weighted = (
        [simulation.simulate(kind, seed=seed) for seed in range(2)]
        for kind in (simulation.Uniform, simulation.DropSolved, simulation.Weighted)
    )
    signal = [np.mean([mixed for mixed, _ in runs]) for runs in (uniform, dropped, weighted)]
    again = [np.mean([solved for _, solved in runs]) for runs in (uniform, dropped, weighted)]
    assert signal[2] > signal[1] + 0.02 > signal[0] + 0.1 and signal[2] > 1.5 * signal[0], signal
    assert again[2] > 5 * again[1], "solved questions are still asked"
