import re
from pathlib import Path

from jax_t2sql.scores.efficiency import RUNS
from jax_t2sql.scores.graders import _RULES, GRADERS
from jax_t2sql.scores.guess import CLASSES

TEXT = (Path(__file__).parents[2] / "docs" / "scores.md").read_text()


def test_the_page_lists_every_grader():
    assert re.findall(r"^\| `([a-z0-9-]+)` \|", TEXT, re.MULTILINE) == list(GRADERS)


def test_its_numbers_are_the_programs():
    assert f"on {_RULES['suite'].copies} perturbed copies" in TEXT
    assert f"within {_RULES['equivalence'].seconds} s" in TEXT
    assert f"runs both queries {RUNS} times" in TEXT
    assert {name.partition("/")[0] for name in CLASSES} == {"model", "ambiguity", "defect"}
