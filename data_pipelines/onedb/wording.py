"""Drafts as sentences, in six registers by rule; and a reading check that needs no reader."""

from __future__ import annotations

import random
import re

from data_pipelines.onedb.draft import Draft
from data_pipelines.onedb.live import Live
from data_pipelines.onedb.words import capital, value_text

REGISTERS = ("question", "command", "polite", "first_person", "keywords", "report")

_FRAMES = {
    "question": ("What {be} {ask}?",),
    "command": ("List {ask}.", "Show {ask}.", "Find {ask}.", "Give {ask}."),
    "command_one": ("Find {ask}.", "Determine {ask}.", "State {ask}.", "Work out {ask}."),
    "polite": ("Could you tell me {ask}?", "Please give me {ask}.", "Can you find {ask}, please?"),
    "first_person": ("I would like to know {ask}.", "I need {ask}.", "I want to find out {ask}."),
    "keywords": ("{bare}",),
    "report": (
        "For a report, we need {ask}.",
        "A colleague asks for {ask}.",
        "We are looking for {ask}.",
    ),
}


def word(draft: Draft, rng: random.Random, register: str) -> str:
    """One sentence for a draft.

    Args:
      register: one of `REGISTERS`.
    """
    ask = rng.choice(draft.asks)
    if register == "question" and draft.questions and rng.random() < 0.8:
        return capital(rng.choice(draft.questions))
    each = ask.startswith("each ")
    if register == "question" and each:
        return capital(rng.choice(draft.questions)) if draft.questions else f"List {ask}."
    key = register
    if register == "command" and not draft.many and not each:
        key = "command_one"
    frames = _FRAMES[key]
    if each and register in ("first_person", "polite", "report"):
        frames = {
            "first_person": ("I would like to see {ask}.", "I want a list of {ask}."),
            "polite": ("Could you list {ask}?", "Please show me {ask}."),
            "report": ("For a report, list {ask}.", "For a table, show {ask}."),
        }[register]
    text = rng.choice(frames).format(
        ask=ask, be="are" if draft.many else "is", bare=ask.removeprefix("the ")
    )
    return text if register == "keywords" else capital(text)


_FAULTS = (
    (re.compile(r"[{}_]|\bNone\b|\bnan\b"), "a leftover of the template"),
    (re.compile(r"  |\s[?.,]"), "a stray blank"),
    (re.compile(r"\b(\w+) \1\b(?<!had had)(?<!that that)", re.IGNORECASE), "a word twice"),
    (re.compile(r"\ban? (?:the|a|an)\b"), "two articles"),
)
MOST_CHARS = 400


def reading_fault(text: str, draft: Draft, live: Live) -> str | None:
    """What a reader would trip over, or None.

    Every value of the query must be said as it is stored (or as the legend explains it).
    """
    said = text
    for condition in draft.conditions:
        meanings = live.legend.column(*condition.column.key).values
        for value in condition.values:
            told = meanings.get(str(value)) or value_text(value)
            if told not in text and str(value) not in text:
                return f"{value!r} is not said"
            said = said.replace(told, "X").replace(str(value), "X")
    for pattern, fault in _FAULTS:
        found = pattern.search(said)
        if found:
            return f"{fault}: {found[0]!r}"
    return f"{len(text)} characters" if len(text) > MOST_CHARS else None
