"""An evaluation's folder, read."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from jax_t2sql.errors import UserError
from jax_t2sql.scores.graders import VALUED
from jax_t2sql.scores.records import AnswerRow, QuestionRow, VerdictRow, read_rows

FILES = ("questions.jsonl", "answers.jsonl", "verdicts.jsonl")
FAILURES = "failures.jsonl"  # what `explain` has found
RESULTS, MANIFEST = "results.json", "manifest.json"


@dataclass(frozen=True)
class EvalRun:
    """What `jax_t2sql.eval` left in a folder.

    Attributes:
      questions: by question id, in the order they were asked.
      results, manifest: the JSON objects of these names; empty while the run goes on.
    """

    folder: Path
    questions: dict[str, QuestionRow]
    answers: list[AnswerRow]
    verdicts: list[VerdictRow]
    results: dict[str, Any] = field(default_factory=dict)
    manifest: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """How tables call it."""
        return self.folder.name or str(self.folder)

    @cached_property
    def graders(self) -> list[str]:
        """Graders that there are verdicts of, the headline's first."""
        found = dict.fromkeys(verdict.grader for verdict in self.verdicts)
        first = self.results.get("grader")
        return sorted(found, key=lambda name: name != first)

    @cached_property
    def keys(self) -> list[str]:
        """Answer keys, the headline's first."""
        found = dict.fromkeys(key for q in self.questions.values() for key in q.golds)
        first = self.results.get("key")
        return sorted(found, key=lambda name: name != first)

    def choose(self, grader: str | None, key: str | None) -> tuple[str, str]:
        """The grader and answer key asked for, else the headline's.

        Raises:
          UserError: the run has no such verdicts.
        """
        pairs = ((grader, self.graders, "grader"), (key, self.keys, "key"))
        for value, known, name in pairs:
            if not known or (value is not None and value not in known):
                told = f"has {', '.join(known)}" if known else "has no verdicts at all"
                wanted = f" {value!r}" if value else ""
                raise UserError(f"{self.folder} has no verdicts of {name}{wanted}; it {told}")
        marking = [name for name in self.graders if name not in VALUED]
        if (grader or next(iter(marking), "")) not in marking:
            raise UserError(
                f"{self.folder}: grader {grader or self.graders[0]!r} gives a number, not right or"
                f" wrong; name another: {', '.join(marking) or 'there is none, grade it anew'}"
            )
        return grader or marking[0], key or self.keys[0]

    def correct(self, grader: str, key: str, *, evidence: bool | None = None) -> dict[str, bool]:
        """Whether the answer that counts for each question is right, where that can be told.

        Args:
          grader, key: whose verdicts.
          evidence: of answers with external knowledge shown, or without; if not given, with, where
            the run has such.
        """
        rates = self.marks(grader, key, evidence=evidence)
        return {
            name: marks[self.counting(name, marks, evidence=evidence)]
            for name, marks in rates.items()
        }

    def counting(
        self, question_id: str, candidates: Collection[int], *, evidence: bool | None = None
    ) -> int:
        """The candidate that counts for a question, of these: the greedy one (0); in a run of
        samples alone the one that won the vote (its first draw), the first if that is not known."""
        shown = self.evidence if evidence is None else evidence
        part = self.results
        if shown != part.get("evidence", shown):
            part = part.get("without_evidence") or {}
        winner = None
        if part.get("decoding", "greedy") != "greedy":
            winner = part.get("self_consistency", {}).get("winners", {}).get(question_id)
        return winner if winner in candidates else min(candidates)

    def marks(
        self, grader: str, key: str, *, evidence: bool | None = None
    ) -> dict[str, dict[int, bool]]:
        """Whether each answer is right, by question and candidate, where that can be told."""
        shown = self.evidence if evidence is None else evidence
        found: dict[str, dict[int, bool]] = {}
        for verdict in self.verdicts:
            same = (verdict.grader, verdict.key, verdict.evidence) == (grader, key, shown)
            if same and verdict.correct is not None:
                found.setdefault(verdict.question_id, {})[verdict.candidate] = verdict.correct
        return found

    @cached_property
    def evidence(self) -> bool:
        """Whether the headline is of answers with external knowledge shown."""
        return any(answer.evidence for answer in self.answers) or not self.answers


def read_run(folder: str | Path) -> EvalRun:
    """Reads an evaluation's folder.

    Raises:
      UserError: it is none, or a file in it is damaged.
    """
    folder = Path(folder)
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        told = f"lacks {', '.join(missing)}" if folder.is_dir() else "is no folder"
        raise UserError(f"{folder} {told}; give the --out of an evaluation (jax_t2sql.eval)")
    questions = read_rows(folder / FILES[0], QuestionRow)
    return EvalRun(
        folder=folder,
        questions={row.question_id: row for row in questions},
        answers=read_rows(folder / FILES[1], AnswerRow),
        verdicts=read_rows(folder / FILES[2], VerdictRow),
        results=_read_object(folder / RESULTS),
        manifest=_read_object(folder / MANIFEST),
    )


def _read_object(path: Path) -> dict[str, Any]:
    """A JSON object; {} where there is no file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read ({error}); evaluate again") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} holds no JSON object; evaluate again")
    return value


def database_finder(run: EvalRun, databases: Path | None):
    """A function from db_id to the database's file, or to the UserError that says why there is
    none; from --databases, else where the run found them."""
    from jax_t2sql.sql import resolve_database

    named = run.manifest.get("databases")
    place = databases or (named.get("path") if isinstance(named, Mapping) else named)
    if not place:
        raise UserError(f"{run.folder} does not say where its databases are; give --databases")

    def find(db_id: str) -> Path | UserError:
        try:
            return resolve_database(Path(place), db_id)
        except UserError as error:
            return error

    return find


def shared_questions(runs: Iterable[EvalRun], grader: str, key: str) -> list[str]:
    """Questions whose answers can be told right or wrong in all runs, in the first one's order.

    Raises:
      UserError: there are none.
    """
    runs = list(runs)
    told = [run.correct(grader, key) for run in runs]
    shared = [name for name in runs[0].questions if all(name in scores for scores in told)]
    if not shared:
        names = ", ".join(str(run.folder) for run in runs)
        raise UserError(f"{names} have no graded question in common; compare runs over one file")
    return shared
