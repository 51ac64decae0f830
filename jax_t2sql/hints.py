"""Hints: short help with questions, read from a file, checked, found by question.

A file has one JSON object a line, {"question_id", "strength", "hint"} and perhaps "question": the
text, which must then be the question's too. `data_pipelines.hints` writes such files.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from jax_t2sql.config import HintsConfig
from jax_t2sql.errors import UserError
from jax_t2sql.grading import GradingPool
from jax_t2sql.hint_leaks import find_leak
from jax_t2sql.json_rows import json_rows
from jax_t2sql.prompt_builder import PromptBuilder
from jax_t2sql.text2sql import Problem

Strength = Literal["light", "medium", "strong"]
STRENGTHS: tuple[Strength, ...] = get_args(Strength)
MAX_CHARACTERS = 2_000


@dataclass(frozen=True)
class HintBook:
    """Hints of one strength.

    Attributes:
      sha256: of the file.
      hints: by question id, without its source, and the question's text or None for any.
    """

    sha256: str
    hints: dict[tuple[str, str | None], str] = field(default_factory=dict)

    def find(self, problem: Problem) -> str:
        """The question's hint; "" if there is none."""
        name = hint_name(problem)
        return self.hints.get((name, problem.question)) or self.hints.get((name, None), "")

    def without(self, problems: Sequence[Problem]) -> "HintBook":
        """A copy that has no hint for these questions."""
        left_out = {(hint_name(p), text) for p in problems for text in (p.question, None)}
        kept = {key: hint for key, hint in self.hints.items() if key not in left_out}
        return replace(self, hints=kept)


def hint_name(problem: Problem) -> str:
    """How files of hints name a question: its id without the source that a mixture adds."""
    return problem.question_id.removeprefix(f"{problem.source}/")


def read_hints(path: str | Path, strength: Strength) -> HintBook:
    """The hints of one strength in a file.

    Raises:
      UserError: the first fault found, with file, line and field; or there is none so strong.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
        file = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise UserError(
            f"hints {path} cannot be read ({error.strerror}); make them with data_pipelines.hints"
        ) from error
    book = HintBook(hashlib.sha256(data).hexdigest())
    found: set[str] = set()
    with file:
        for line, row in json_rows(file, path):
            name, kind, question, hint = _row(row, f"{path}:{line}")
            found.add(kind)
            if kind == strength:
                book.hints.setdefault((name, question), hint)
    if not book.hints:
        there = ", ".join(sorted(found)) or "none at all"
        raise UserError(f"{path} has no hint of strength {strength} (there is {there})")
    return book


def _row(row: object, where: str) -> tuple[str, str, str | None, str]:
    if not isinstance(row, dict):
        raise UserError(f"{where}: expected an object with fields question_id, strength, hint")
    name, kind = row.get("question_id"), row.get("strength")
    question, hint = row.get("question"), row.get("hint")
    if isinstance(name, int) and not isinstance(name, bool):
        name = str(name)
    if not isinstance(name, str):
        raise UserError(f"{where}: field 'question_id' must be text or a whole number")
    if kind not in STRENGTHS:
        raise UserError(f"{where}: field 'strength' is {kind!r}; it must be {_any_of(STRENGTHS)}")
    if question is not None and not isinstance(question, str):
        raise UserError(f"{where}: field 'question' must be the question's text")
    if not isinstance(hint, str) or not hint.strip() or len(hint) > MAX_CHARACTERS:
        raise UserError(f"{where}: field 'hint' must be text of 1 to {MAX_CHARACTERS} characters")
    return name, kind, question, " ".join(hint.split())


def _any_of(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def open_hints(
    config: HintsConfig,
    problems: Sequence[Problem],
    prompts: PromptBuilder,
    pool: GradingPool,
    *,
    say: Callable[[str], None],
) -> tuple[HintBook, list[tuple[Problem, str]]]:
    """`read_hints`, then `check_hints`; tells how many there are.

    Raises:
      UserError: the file is bad, or no hint can be used.
    """
    problems = list(dict.fromkeys(problems))
    book, refused = check_hints(read_hints(config.file, config.strength), problems, prompts, pool)
    usable = sum(bool(book.find(problem)) for problem in problems)
    if not usable:
        raise UserError(
            f"no hint of {config.file} can be used: {len(refused)} give their answer away or are"
            " too long, the others are of other questions"
        )
    why = "; see refused_hints.jsonl for those that are not used" if refused else ""
    say(f"{usable} of {len(problems)} questions have a hint{why}")
    return book, refused


def check_hints(
    book: HintBook, problems: Sequence[Problem], prompts: PromptBuilder, pool: GradingPool
) -> tuple[HintBook, list[tuple[Problem, str]]]:
    """The hints that may be shown, and the questions whose hint may not, with the reason.

    Left out is what gives the answer away, and what leaves no room for an answer.

    Args:
      problems: questions whose gold query runs.
    """
    hinted = [(problem, hint) for problem in problems if (hint := book.find(problem))]
    results = [pool.execute(prompts.path(problem), problem.gold_sql) for problem, _ in hinted]
    refused = []
    for (problem, hint), future in zip(hinted, results, strict=True):
        outcome = future.result()
        reason = find_leak(hint, problem, outcome.rows)
        if not reason:
            length = len(prompts.ids(replace(problem, hint=hint)))
            if length > prompts.room:
                reason = f"its prompt of {length} tokens leaves no room for an answer"
        if reason:
            refused.append((problem, f"hint: {reason}"))
    return book.without([problem for problem, _ in refused]), refused
