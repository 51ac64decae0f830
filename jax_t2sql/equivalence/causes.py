"""Why a pair was left open, in one word: for counts."""

import re

# By the first pattern found in the reason; the order matters.
_CAUSES = (
    ("stopped", r"\bstopped\b|\bdied\b|\bmemory\b|the checker failed"),
    ("not_runnable", r"does not run|cannot be run|fails\b|failed on all"),
    ("chance", r"free to make|\bchance\b"),
    ("replay", r"on the database found|breaks a constraint|the solver's database"),
    ("time", r"gave up|timeout|too long|too large"),
    ("perturbation", r"perturbed"),
    ("not_modelled", r"no proof:"),
)


def unknown_cause(reason: str) -> str:
    """The kind of a reason for "unknown": one of a few words, "open" where none fits.

    >>> unknown_cause("the gold query does not run: no such table: t")
    'not_runnable'
    """
    for cause, pattern in _CAUSES:
        if re.search(pattern, reason):
            return cause
    return "open"
