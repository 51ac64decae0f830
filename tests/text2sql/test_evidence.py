import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_t2sql.text2sql.evidence import (
    Compliance,
    check_evidence,
    entry,
    evidence_pieces,
    missing_entries,
)
from jax_t2sql.text2sql.tool_formats import TOOL_FORMATS

EVIDENCE = "Dutch refers to language = 'nl'; ;long books refers to pages > 500 (hardcover);"
ONE, TWO = evidence_pieces(EVIDENCE)
CALL = TOOL_FORMATS["hermes"].write("SELECT 1")


def block(kind: str, *numbers: int) -> str:
    return "\n".join(entry(kind, n, (ONE, TWO)[n - 1], "it does so") for n in numbers)


REQUIRED, VERIFIED = block("Requirement", 1, 2), block("Verification", 1, 2)
SOLUTION = "<solution>SELECT 1</solution>"


def test_blank_pieces_are_ignored_and_the_others_kept_as_they_are():
    assert (ONE, TWO) == (
        "Dutch refers to language = 'nl'",
        "long books refers to pages > 500 (hardcover)",
    )
    assert evidence_pieces("a; b\nc ;;") == ("a", "b\nc")
    assert evidence_pieces(" ; ;\n") == evidence_pieces("") == ()


@pytest.mark.parametrize(
    ("turns", "required", "verified"),
    [
        # Both blocks where they belong.
        ([f"{REQUIRED}\n{CALL}", f"{VERIFIED}\n{SOLUTION}"], (), ()),
        ([CALL, f"{REQUIRED}\n{CALL}", CALL, f"{VERIFIED}\n{SOLUTION}"], (), ()),
        ([f"{REQUIRED}\n{VERIFIED}\n{SOLUTION}"], (), ()),
        # The second turn may be the one that answers.
        ([CALL, f"{REQUIRED}\n{VERIFIED}\n{SOLUTION}"], (), ()),
        # A block begun in the first turn may be completed in the second.
        ([block("Requirement", 2) + CALL, block("Requirement", 1) + CALL, VERIFIED], (), ()),
        # Too late, too early.
        ([CALL, CALL, f"{REQUIRED}\n{CALL}", VERIFIED], (1, 2), ()),
        ([f"{REQUIRED}\n{VERIFIED}\n{CALL}", SOLUTION], (), (1, 2)),
        # Partial.
        ([block("Requirement", 2) + CALL, VERIFIED], (1,), ()),
        ([REQUIRED, block("Verification", 1) + SOLUTION], (), (2,)),
        ([SOLUTION], (1, 2), (1, 2)),
        # A one-turn answer needs both.
        ([f"{REQUIRED}\n{SOLUTION}"], (), (1, 2)),
        ([f"{VERIFIED}\n{SOLUTION}"], (1, 2), ()),
    ],
)
def test_the_two_rules(turns, required, verified):
    found = check_evidence(EVIDENCE, turns)
    assert found == Compliance(2, required, verified)
    assert found.rules_missed == bool(required) + bool(verified)


def test_without_evidence_nothing_is_asked():
    for evidence in ("", " ; "):
        assert check_evidence(evidence, [SOLUTION]) == Compliance(0)
        assert check_evidence(evidence, []).rules_missed == 0
    assert check_evidence(EVIDENCE, []).rules_missed == 2


@pytest.mark.parametrize(
    "text",
    [
        REQUIRED,
        block("Requirement", 2, 1),  # another order
        "I read the schema.\n\n" + REQUIRED + "\nSo I look at the values.",
        # List marks and emphasis.
        "\n".join(f"- {line}" for line in REQUIRED.split("\n")),
        "\n".join(f"{n}. **{line}" for n, line in enumerate(REQUIRED.split("\n"), 1)),
        f"**Requirement of external knowledge 1 ({ONE}):** only nl\n"
        f"**Requirement of external knowledge 2 ({TWO})**: only long ones",
        # Blanks and the case of the heading are free.
        REQUIRED.replace("Requirement of external", "requirement  of\texternal"),
        REQUIRED.replace("language = 'nl'", "language  =\n  'nl'"),
        # What it says may stand on the next line.
        REQUIRED.replace("): ", "):\n  "),
    ],
)
def test_good_blocks(text):
    assert missing_entries(text, (ONE, TWO), "Requirement") == ()


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("", (1, 2)),
        (VERIFIED, (1, 2)),  # the other block
        (block("Requirement", 1), (2,)),
        (block("Requirement", 1) + "\n" + block("Requirement", 1), (2,)),
        # A number with the other piece's text.
        (entry("Requirement", 1, TWO, "x") + "\n" + entry("Requirement", 2, ONE, "x"), (1, 2)),
        # Another text: shortened, reworded, in other letters.
        (REQUIRED.replace(" (hardcover)", ""), (2,)),
        (REQUIRED.replace("'nl'", "'NL'"), (1,)),
        # Nothing said.
        (entry("Requirement", 1, ONE, "") + "\n" + entry("Requirement", 2, TWO, "x"), (1,)),
        (entry("Requirement", 1, ONE, " …") + "\n" + entry("Requirement", 2, TWO, " ___"), (1, 2)),
        (REQUIRED.replace("): ", ")"), (1, 2)),
    ],
)
def test_partial_and_wrong_blocks(text, missing):
    assert missing_entries(text, (ONE, TWO), "Requirement") == missing


@pytest.mark.parametrize(
    "text",
    [
        f"<think>\n{REQUIRED}\n</think>\nI look.",
        f"{REQUIRED}\n</think>",  # the template opened the reasoning block
        f"<solution>\nSELECT 1 /*\n{REQUIRED}\n*/</solution>",
        f"<solution>\n{REQUIRED}",
        f"```\n{REQUIRED}\n```",
        f"```sql\n{REQUIRED}",
        "\n".join(f"> {line}" for line in REQUIRED.split("\n")),
        "The lines must be like " + " and ".join(REQUIRED.split("\n")),
        *(
            form.write("SELECT 1").replace("SELECT 1", f"SELECT 1 /*\n{REQUIRED}\n*/")
            for form in TOOL_FORMATS.values()
        ),
    ],
)
def test_blocks_quoted_elsewhere_do_not_count(text):
    assert missing_entries(text, (ONE, TWO), "Requirement") == (1, 2)


def test_an_open_reasoning_block_is_told_by_the_caller():
    text = f"{REQUIRED}\n</think>\n{VERIFIED}\n{SOLUTION}"
    found = check_evidence(EVIDENCE, [text], inside_reasoning=True)
    assert found == Compliance(2, (1, 2), ())


# No tags, fences or quotation marks at a line's start: those mean something.
_PIECES = st.lists(
    st.text(st.characters(exclude_characters=";<>`", exclude_categories=["Cs"]), min_size=1)
    .map(str.strip)
    .filter(bool),
    min_size=1,
    max_size=4,
)


@settings(deadline=None)
@given(_PIECES, st.data())
def test_any_piece_is_found_again(pieces, data):
    lines = [entry("Requirement", n, p, "so it is") for n, p in enumerate(pieces, start=1)]
    order = data.draw(st.permutations(range(len(lines))))
    assert missing_entries("\n".join(lines[i] for i in order), pieces, "Requirement") == ()
    gone = data.draw(st.integers(0, len(lines) - 1))
    rest = "\n".join(line for i, line in enumerate(lines) if i != gone)
    found = missing_entries(rest, pieces, "Requirement")
    assert gone + 1 in found
