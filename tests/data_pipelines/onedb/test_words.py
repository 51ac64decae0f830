"""Words from names."""

import doctest

import pytest

from data_pipelines.onedb import leak, words


@pytest.mark.parametrize("module", [words, leak])
def test_examples(module):
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    "name, noun",
    [("superheroes", "superhero"), ("Ref_Document_Types", "ref document type"), ("staff", None)],
)
def test_singulars(name, noun):
    assert words.singular(words.phrase(name)) == (noun or "staff member")


def test_values_are_said_as_stored():
    assert words.value_text("it's") == '"it\'s"'
    assert words.value_text('say "x"') == "'say \"x\"'"
    assert words.value_text(1e-7) == "1e-07"
