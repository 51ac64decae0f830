"""Several graders side by side, over the answers of an evaluation.

All SQL runs in the grading pool under its limits. An answer is run once for all graders that
compare results; what `Memo` knows is not run at all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jax_t2sql.errors import UserError
from jax_t2sql.grading import AssessJob, EquivalenceRule, GradingPool, Verdict
from jax_t2sql.scores.efficiency import time_rewards
from jax_t2sql.scores.memo import Kept, Memo
from jax_t2sql.scores.records import AnswerRow, QuestionRow, VerdictRow
from jax_t2sql.sql import Mode, parse_mode
from jax_t2sql.sql.tokens import split_statement
from jax_t2sql.sql.varying import is_varying

# What each is, as help and reports tell it.
GRADERS = {
    "question": "the comparison that the question names (set where it names none)",
    "set": "same distinct rows, in any order",
    "multiset": "same rows, each as often, in any order",
    "list": "same rows in the same order",
    "bird": "the public BIRD evaluator's rule, to the bit (EX)",
    "suite": "equal on the real database and on 10 perturbed copies of it, each with rows drawn"
    " anew and values swapped within columns, keys kept; under the question's own comparison. In"
    " the manner of Spider's test suites, which are other databases",
    "equivalence": "equal, and no small database found that tells the two queries apart, under the"
    " question's own comparison",
    "soft-f1": "BIRD mini-dev's similarity of the two results, from 0 to 1",
    "r-ves": "BIRD mini-dev's efficiency score; it measures time, so it differs between runs and"
    " machines",
}
# These give a number; the others right or wrong.
VALUED = ("soft-f1", "r-ves")
DEFAULT = ("question", "set", "multiset", "list", "bird", "soft-f1")

_RULES = {
    "suite": EquivalenceRule(method="perturbation", seconds=3.0, copies=10),
    "equivalence": EquivalenceRule(seconds=1.5, bound=2),
}
_CHUNK = 1_000  # answers graded together, between which verdicts are handed out
_UNTOLD = ("gold_error", "infrastructure")
# May have been the machine's fault.
_UNREPEATABLE = (*_UNTOLD, "timeout", "crashed", "unchecked")


def parse_graders(text: str) -> tuple[str, ...]:
    """Names of graders from a list with commas; the first one's figures are the headline.

    Raises:
      UserError: a name that is none, or none at all.

    >>> parse_graders("bird, set")
    ('bird', 'set')
    """
    names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in GRADERS:
            raise UserError(f"grader {name!r} is unknown; use {', '.join(GRADERS)}")
    if not names:
        raise UserError(f"no grader is named; use some of {', '.join(GRADERS)}")
    return names


@dataclass(frozen=True)
class _Case:
    """One answer under one answer key, with its database."""

    answer: AnswerRow
    key: str
    gold: str
    mode: Mode
    database: Path

    @property
    def pred(self) -> str:
        statement, rest = split_statement(self.answer.sql)
        return self.answer.sql if rest else statement

    def comparison(self, grader: str) -> Mode:
        """The mode that the grader compares in."""
        return Mode(grader) if grader in ("set", "multiset", "list", "bird") else self.mode

    def row(self, grader: str, kept: Kept) -> VerdictRow:
        return VerdictRow(
            question_id=self.answer.question_id,
            candidate=self.answer.candidate,
            evidence=self.answer.evidence,
            key=self.key,
            grader=grader,
            kind=kept.kind,
            correct=kept.correct,
            value=kept.value,
            detail=kept.detail,
        )


def grade_answers(
    questions: Mapping[str, QuestionRow],
    answers: Sequence[AnswerRow],
    *,
    graders: Sequence[str],
    find: Callable[[str], Path | UserError],
    pool: GradingPool,
    memo: Memo | None = None,
    keys: Sequence[str] | None = None,
    limits: str = "",
) -> Iterator[list[VerdictRow]]:
    """Grades answers; yields the verdicts of some at a time, in the order of the answers.

    Args:
      questions: by question id.
      answers: those to grade.
      graders: names of `GRADERS`.
      find: gives the database file of a db_id, or says why there is none.
      pool: where queries run.
      memo: verdicts of before.
      keys: answer keys to grade under, all of a question's if not given.
      limits: the pool's limits in words, as part of what a kept verdict depends on.
    """
    modes = {
        (question.question_id, key): parse_mode(gold.grading)
        for question in questions.values()
        for key, gold in question.golds.items()
    }
    for first in range(0, len(answers), _CHUNK):
        rows: list[VerdictRow | None] = []
        open_cases: list[tuple[int, _Case, str]] = []
        for answer in answers[first : first + _CHUNK]:
            question = questions[answer.question_id]
            for key, gold in question.golds.items():
                if keys is not None and key not in keys:
                    continue
                for grader in graders:
                    case = _Case(answer, key, gold.sql, modes[question.question_id, key], Path())
                    place = find(question.db_id)
                    if answer.sql is None:
                        value = 0.0 if grader in VALUED else None
                        correct = None if grader in VALUED else False
                        kept = Kept(answer.ending, correct, value, answer.error)
                        rows.append(case.row(grader, kept))
                    elif isinstance(place, UserError):
                        rows.append(
                            case.row(grader, Kept("infrastructure", None, None, str(place)))
                        )
                    else:
                        open_cases.append((len(rows), replace(case, database=place), grader))
                        rows.append(None)
        found = _with_memo([(c, g) for _, c, g in open_cases], pool, memo, limits)
        for (place, case, grader), kept in zip(open_cases, found, strict=True):
            rows[place] = case.row(grader, kept)
        yield [row for row in rows if row is not None]


def _with_memo(
    cases: list[tuple[_Case, str]], pool: GradingPool, memo: Memo | None, limits: str
) -> list[Kept]:
    """The verdicts, from the memo where it has them."""
    if memo is None:
        return _graded(cases, pool)
    keys = [memo.key(c.database, c.gold, c.pred, _identity(c, g), limits) for c, g in cases]
    # R-VES measures time: what it gave before says nothing of now.
    lasting = [
        grader != "r-ves" and not is_varying(case.gold) and not is_varying(case.pred)
        for case, grader in cases
    ]
    known = memo.read({key for key, lasts in zip(keys, lasting, strict=True) if lasts})
    open_places = [i for i, key in enumerate(keys) if key not in known]
    fresh = dict(zip(open_places, _graded([cases[i] for i in open_places], pool), strict=True))
    memo.write(
        {
            keys[i]: kept
            for i, kept in fresh.items()
            if lasting[i] and kept.kind not in _UNREPEATABLE
        }
    )
    return [fresh[i] if i in fresh else known[key] for i, key in enumerate(keys)]


def _identity(case: _Case, grader: str) -> str:
    """All that a verdict depends on besides queries, database and limits."""
    if grader == "soft-f1":
        return grader
    if grader in _RULES:
        return f"{grader} {case.mode} {_RULES[grader]}"
    return f"compare {case.comparison(grader)}"


def _graded(cases: list[tuple[_Case, str]], pool: GradingPool) -> list[Kept]:
    """The verdicts, found now."""
    wanted: dict[_Pair, dict[Mode, None]] = {}
    for case, grader in cases:
        modes = wanted.setdefault(_pair(case), {})
        modes[Mode("bird") if grader in VALUED else case.comparison(grader)] = None
    jobs = [AssessJob(*pair, tuple(modes)) for pair, modes in wanted.items()]
    assessed = dict(zip(wanted, pool.assess_many(jobs), strict=True))

    def verdict(case: _Case, mode: Mode) -> Verdict:
        pair = _pair(case)
        return assessed[pair].verdicts[list(wanted[pair]).index(mode)]

    checks = {}
    for case, grader in cases:
        if grader in _RULES and verdict(case, case.mode).matches:
            checks[case, grader] = pool.check_equivalence(
                case.gold,
                case.pred,
                schema=case.database,
                database=case.database,
                mode=case.mode,
                rule=_RULES[grader],
            )
    timed = dict.fromkeys(
        _pair(case)
        for case, grader in cases
        if grader == "r-ves" and verdict(case, Mode("bird")).matches
    )
    rewards = dict(zip(timed, time_rewards(list(timed), pool), strict=True))
    found = []
    for case, grader in cases:
        if grader == "soft-f1":
            found.append(_similarity(assessed[_pair(case)], verdict(case, Mode("bird"))))
        elif grader == "r-ves":
            reward = rewards.get(_pair(case), 0.0)
            found.append(_efficiency(verdict(case, Mode("bird")), reward))
        elif (case, grader) in checks:
            found.append(_checked(checks[case, grader].result()))
        else:
            found.append(told(verdict(case, case.comparison(grader))))
    return found


_Pair = tuple[Path, str, str]


def _pair(case: _Case) -> _Pair:
    return case.database, case.gold, case.pred


def told(verdict: Verdict) -> Kept:
    """A verdict of the pool in the words of the records."""
    names = {"equal": "match", "different": "mismatch"}
    # With an empty gold a benchmark still counts the answer that is empty too.
    names["gold_empty"] = "match" if verdict.matches else "mismatch"
    kind = names.get(verdict.status, verdict.status)
    return Kept(kind, None if kind in _UNTOLD else verdict.matches, None, verdict.detail)


def _similarity(assessment, bird: Verdict) -> Kept:
    kept = told(bird)
    return kept._replace(correct=None, value=assessment.soft_f1, detail="")


def _efficiency(bird: Verdict, reward: float) -> Kept:
    kept = told(bird)
    if kept.correct is None:
        return kept
    return kept._replace(correct=None, value=reward**0.5, detail=f"reward {reward:g} for its time")


def _checked(verdict) -> Kept:
    if verdict.kind == "refuted":
        return Kept("refuted", False, None, verdict.reason)
    # A check that was broken off (no time spent in a worker) says nothing: the match stands.
    broken_off = verdict.kind == "unknown" and not verdict.cpu_seconds
    kind = "unchecked" if broken_off else "match"
    return Kept(kind, True, None, f"{verdict.kind}: {verdict.reason}")
