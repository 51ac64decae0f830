"""Reasons in one word, for counts."""

import pytest

from jax_t2sql.equivalence import unknown_cause


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("the predicted query does not run: no such column: x", "not_runnable"),
        ("the gold query cannot be run: only reading", "not_runnable"),
        ("a query failed on all 40 databases tried: interrupted", "not_runnable"),
        ("no difference on 12 small databases but 3 that SQLite was free to make", "chance"),
        ("the check was stopped after 11 s, stuck inside one step of SQLite", "stopped"),
        ("the process that ran this died twice (exit status -9)", "stopped"),
        ("the two queries give equal results on the database found", "replay"),
        ("the match holds on all 10 perturbed copies", "perturbation"),
        (
            "no difference on 12 small databases; the solver's database shows no difference in a"
            " replay",
            "replay",
        ),
        ("no difference on 9 small databases; no proof: z3 gave up (timeout)", "time"),
        (
            "no difference on 9 small databases; no proof: building the formula took too long",
            "time",
        ),
        (
            "no difference on 9 small databases; no proof: the answer is left to chance: ties",
            "chance",
        ),
        ("no difference on 9 small databases; no proof: a window function", "not_modelled"),
        ("no difference on 12 small databases", "open"),
    ],
)
def test_causes(reason, cause):
    assert unknown_cause(reason) == cause
