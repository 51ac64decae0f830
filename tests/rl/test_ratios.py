"""A sampler that computes other log-probs than the learner is told of, and only then."""

from types import SimpleNamespace

import pytest

from jax_t2sql.rl.loop import Step
from jax_t2sql.rl.ratios import RatioWatch


def step(version, ratio, *, ages=(0, 0), replayed=False):
    """An update to `version` on groups so many versions old."""
    groups = [
        SimpleNamespace(oldest_version=version - 1 - age, sampler=f"s{n}")
        for n, age in enumerate(ages)
    ]
    return Step(
        version=version,
        applied=True,
        metrics={"ratio_mean": ratio},
        batch=SimpleNamespace(step=version - 1),
        trained=groups,
        fresh=groups,
        replayed=replayed,
    )


@pytest.fixture
def watch():
    said, hook = [], RatioWatch()
    loop = SimpleNamespace(say=said.append)

    def go(*arguments, **options):
        said.clear()
        made = step(*arguments, **options)
        hook(loop, made)
        return list(said), made.metrics.get("ratio_on_policy")

    return go


def test_agreement_is_silent(watch):
    assert watch(1, 1.04) == ([], 1.04)


@pytest.mark.parametrize("ratio", [0.5, 1.2])
def test_a_deviation_names_the_samplers_now_and_then(watch, ratio):
    (line,), measured = watch(5, ratio)
    assert measured == ratio and "step 5" in line and "s0, s1" in line and f"{ratio:.3f}" in line
    assert [len(watch(version, ratio)[0]) for version in (6, 14, 15)] == [0, 0, 1]


def test_older_groups_and_replays_prove_nothing(watch):
    assert watch(5, 0.2, ages=(0, 1)) == ([], None)
    assert watch(5, 0.2, replayed=True) == ([], None)
