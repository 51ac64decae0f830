"""The figures of an evaluation: accuracy with intervals, in parts, by grader, and where graders
disagree."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

from jax_t2sql.errors import UserError
from jax_t2sql.scores.graders import GRADERS, VALUED
from jax_t2sql.scores.records import AnswerRow, QuestionRow, VerdictRow
from jax_t2sql.scores.tags import TAGS, structure_tags
from jax_t2sql.stats import against_proxy, wilson

# Data engineers and database students on BIRD's test questions, as that benchmark publishes it.
HUMAN_PROXY = 0.9296
_EXAMPLES = 10  # questions named of each disagreement


def share(correct: Iterable[bool]) -> dict[str, Any]:
    """n, correct, accuracy and its 95 % Wilson interval. No accuracy of nothing."""
    marks = list(correct)
    low, high = wilson(sum(marks), len(marks))
    return {
        "n": len(marks),
        "correct": sum(marks),
        "accuracy": sum(marks) / len(marks) if marks else None,
        "wilson_low": low,
        "wilson_high": high,
    }


def proxy_test(figures: Mapping[str, Any], proxy: float) -> dict[str, Any]:
    """The stated accuracy, and how that of `share`'s figures stands to it."""
    test = against_proxy(figures["correct"], figures["n"], proxy)
    return {"accuracy": proxy, "p_value": test.p_value, "relation": test.relation}


def summarise(
    questions: Mapping[str, QuestionRow],
    answers: Sequence[AnswerRow],
    verdicts: Sequence[VerdictRow],
    *,
    grader: str,
    key: str,
    proxy: float = HUMAN_PROXY,
    evidence: bool = True,
) -> dict[str, Any]:
    """Figures over the questions' first answers (candidate 0).

    What cannot be told right or wrong (the gold query fails, the machine failed) is not counted,
    but told as `untold`. A question whose answer is no query counts as wrong.

    Args:
      questions: by question id.
      grader, key: whose verdicts are the headline.
      proxy: stated accuracy that the headline is tested against.
      evidence: of answers with external knowledge shown, or of those without.

    Returns: n, correct, accuracy, wilson_low, wilson_high; grader, key; untold; kinds (verdicts by
      kind); answered (share that gave a query); proxy; by (difficulty, database, tags); graders;
      disagreement.

    Raises:
      UserError: the headline's grader gives no right or wrong.
    """
    if grader in VALUED:
        raise UserError(
            f"grader {grader!r} gives a number, not right or wrong; name another one first"
        )
    chosen = [
        verdict
        for verdict in verdicts
        if verdict.candidate == 0 and verdict.key == key and verdict.evidence == evidence
    ]
    by_grader: dict[str, dict[str, VerdictRow]] = defaultdict(dict)
    for verdict in chosen:
        by_grader[verdict.grader][verdict.question_id] = verdict
    headline = by_grader.get(grader, {})
    correct = {name: row.correct for name, row in headline.items() if row.correct is not None}
    total = share(correct.values())
    first = [a for a in answers if a.candidate == 0 and a.evidence == evidence]
    return {
        **total,
        "grader": grader,
        "grader_is": GRADERS[grader],
        "key": key,
        "evidence": evidence,
        "untold": len(headline) - len(correct),
        "kinds": dict(Counter(row.kind for row in headline.values()).most_common()),
        "answered": sum(a.sql is not None for a in first) / len(first) if first else None,
        "proxy": proxy_test(total, proxy),
        "by": {
            "difficulty": shares_by(correct, lambda name: [difficulty(questions[name])]),
            "database": shares_by(correct, lambda name: [questions[name].db_id]),
            "tags": shares_by(
                correct,
                lambda name: structure_tags(questions[name].golds[key].sql),
                order=list(TAGS),
            ),
        },
        "graders": {name: _of_grader(name, rows.values()) for name, rows in by_grader.items()},
        "disagreement": disagreement(by_grader),
    }


_USUAL = ("simple", "easy", "moderate", "medium", "challenging", "hard", "extra")


def difficulty(question: QuestionRow) -> str:
    """How tables call a question's difficulty."""
    return question.difficulty or "none given"


def shares_by(
    correct: Mapping[str, bool],
    groups_of: Callable[[str], Sequence[str]],
    *,
    order: Sequence[str] = _USUAL,
) -> dict[str, dict[str, Any]]:
    """`share` of each group; a question may be of several. Groups in the order given, then others.

    Args:
      correct: by question.
      groups_of: the groups of a question.
    """
    groups: dict[str, list[bool]] = defaultdict(list)
    for name, right in correct.items():
        for group in groups_of(name):
            groups[group].append(right)

    def place(group: str) -> tuple[int, str]:
        return (order.index(group) if group in order else len(order)), group

    return {group: share(groups[group]) for group in sorted(groups, key=place)}


def _of_grader(name: str, rows: Iterable[VerdictRow]) -> dict[str, Any]:
    """Figures of one grader; `refuted_share` is of the answers that match on the real database."""
    rows = list(rows)
    if name in VALUED:
        values = [row.value for row in rows if row.value is not None]
        # BIRD gives R-VES in hundredths.
        scale = 100.0 if name == "r-ves" else 1.0
        mean = scale * fmean(values) if values else None
        return {"n": len(values), "mean": mean, "is": GRADERS[name]}
    found = share(row.correct for row in rows if row.correct is not None) | {"is": GRADERS[name]}
    refuted = sum(row.kind == "refuted" for row in rows)
    if name in ("suite", "equivalence"):
        matched = refuted + found["correct"]
        found["refuted_share"] = refuted / matched if matched else None
    return found


def disagreement(by_grader: Mapping[str, Mapping[str, VerdictRow]]) -> list[dict[str, Any]]:
    """For each two graders: questions that only the first calls right, and only the second."""
    table = []
    marking = [name for name in by_grader if name not in VALUED]
    for first, second in combinations(marking, 2):
        ours, theirs = by_grader[first], by_grader[second]
        told = [
            (name, row.correct, theirs[name].correct)
            for name, row in ours.items()
            if row.correct is not None and name in theirs and theirs[name].correct is not None
        ]
        only_first = [name for name, a, b in told if a and not b]
        only_second = [name for name, a, b in told if b and not a]
        table.append(
            {
                "first": first,
                "second": second,
                "n": len(told),
                "only_first": len(only_first),
                "only_second": len(only_second),
                "examples_first": only_first[:_EXAMPLES],
                "examples_second": only_second[:_EXAMPLES],
            }
        )
    return table
