"""Draws questions from templates, keeps the sound ones, and deals them into files.

A question is sound if its answer has rows and something in them, and if no question that differs in
one piece has the same answer: then wrong SQL is seldom rewarded by luck.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from data_pipelines.templates import Choices, grading_method, render_sql
from data_pipelines.templates_catalogue import Template
from data_pipelines.templates_draw import draw, variants
from data_pipelines.templates_english import render_question
from data_pipelines.world_schema import Database
from jax_t2sql.errors import UserError
from jax_t2sql.sql import Limits, Sandbox, parse_mode, results_equal

# Draws without a new question after which a template counts as used up.
PATIENCE = 400
# Questions with the same SQL.
WORDINGS = 4


class QuestionPool:
    """Questions over open databases; never gives two with the same text."""

    def __init__(
        self, databases: tuple[Database, ...], paths: dict[str, Path], rng: random.Random
    ) -> None:
        self._databases = {database.db_id: database for database in databases}
        self._rng = rng
        self._texts: set[str] = set()
        self._sandboxes = {db_id: Sandbox(path, limits=Limits()) for db_id, path in paths.items()}

    def __enter__(self) -> QuestionPool:
        return self

    def __exit__(self, *_: object) -> None:
        for sandbox in self._sandboxes.values():
            sandbox.close()

    def split(
        self, templates: list[Template], sizes: dict[str, int], *, apart: str
    ) -> dict[str, list[Choices]]:
        """Deal new questions from `templates` into files of the given sizes.

        Every template gives each file a share of its questions, as many as its weight asks for;
        where a template has too few questions, the others fill its place. The file `apart` shares
        no SQL with the others, which may ask for the same SQL in other words.

        Raises:
            UserError: the templates cannot make that many questions.
        """
        shares = {split: sum(template.share(split) for template in templates) for split in sizes}
        stacks: dict[str, dict[str, list[Choices]]] = {split: {} for split in sizes}
        for template in templates:
            # Twice as many as its share, to fill the places of templates that run out.
            wanted = {
                split: 2 * size * template.share(split) / shares[split]
                for split, size in sizes.items()
            }
            by_sql = self._draw_many(template, 1 + int(sum(wanted.values())))
            for split, questions in _deal(list(by_sql.values()), wanted, apart).items():
                self._rng.shuffle(questions)
                stacks[split][template.name] = questions
        return {
            split: _take(stacks[split], templates, size, split) for split, size in sizes.items()
        }

    def _draw_many(self, template: Template, count: int) -> dict[str, list[Choices]]:
        """Up to `count` questions, by their SQL."""
        found: dict[str, list[Choices]] = {}
        drawn, failures = 0, 0
        while drawn < count and failures < PATIENCE:
            failures += 1
            try:
                choices = draw(tuple(self._databases.values()), template, self._rng)
            except LookupError:
                continue
            database = self._databases[choices.db_id]
            sql, text = render_sql(database, choices), render_question(database, choices)
            same = found.get(sql, [])
            if text in self._texts or len(same) >= WORDINGS or not self._is_sound(choices):
                continue
            self._texts.add(text)
            found[sql] = [*same, choices]
            drawn, failures = drawn + 1, 0
        return found

    def _is_sound(self, choices: Choices) -> bool:
        answer, mode = self._answer(choices), parse_mode(grading_method(choices))
        if all(value in (None, 0) for row in answer for value in row):
            return False
        return not any(
            results_equal(answer, self._answer(variant), mode) for variant in variants(choices)
        )

    def _answer(self, choices: Choices) -> Sequence[tuple]:
        sql = render_sql(self._databases[choices.db_id], choices)
        outcome = self._sandboxes[choices.db_id].execute(sql)
        if outcome.status != "ok":
            raise RuntimeError(f"{choices} rendered to SQL that fails: {sql}: {outcome.message}")
        return outcome.rows


def _deal(
    groups: list[list[Choices]], wanted: dict[str, float], apart: str
) -> dict[str, list[Choices]]:
    """Questions grouped by SQL, in proportion to `wanted`; whole groups go to `apart`."""
    total = sum(wanted.values())
    boundary = max(1, round(len(groups) * wanted[apart] / total))
    dealt = {apart: [choices for group in groups[:boundary] for choices in group]}
    # Wording by wording, so that the other files see as many different queries as they can.
    others = groups[boundary:]
    rest = [group[turn] for turn in range(WORDINGS) for group in others if turn < len(group)]
    start, taken = 0, 0.0
    for split, size in wanted.items():
        if split != apart:
            taken += size
            end = round(len(rest) * taken / (total - wanted[apart]))
            dealt[split] = rest[start:end]
            start = end
    return dealt


def _take(
    stacks: dict[str, list[Choices]], templates: list[Template], size: int, split: str
) -> list[Choices]:
    """`size` questions, next from the template whose share is least filled."""
    taken: list[Choices] = []
    counts = {template.name: 0 for template in templates}
    while len(taken) < size:
        open_templates = [t for t in templates if counts[t.name] < len(stacks[t.name])]
        if not open_templates:
            raise UserError(
                f"the templates make only {len(taken)} questions for {split}, not {size}; "
                "ask for fewer"
            )
        template = min(open_templates, key=lambda t: (counts[t.name] + 1) / t.share(split))
        taken.append(stacks[template.name][counts[template.name]])
        counts[template.name] += 1
    return taken
