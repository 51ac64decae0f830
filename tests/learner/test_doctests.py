import doctest
import importlib
import pkgutil

import pytest

import jax_t2sql.learner as learner

MODULES = [learner.__name__] + [
    f"{learner.__name__}.{module.name}" for module in pkgutil.iter_modules(learner.__path__)
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_every_loss_has_an_example():
    examples = doctest.DocTestFinder().find(importlib.import_module("jax_t2sql.learner.losses"))
    shown = {test.name.split(".")[-1] for test in examples if test.examples}
    assert shown == {"cispo", "dapo", "grpo", "policy_gradient", "sft"}
