"""Several question sets as one: unique ids, one folder of databases, shares of the draws."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jax_t2sql.errors import UserError
from jax_t2sql.sql import resolve_database
from jax_t2sql.text2sql import Problem


@dataclass(frozen=True)
class Ingredient:
    """A question set to be mixed in.

    Attributes:
      spec: how the user names it, for `--data`.
      share: part of the draws that it gets.
    """

    spec: str
    share: float


def parse_mixture(items: Sequence[str]) -> list[Ingredient]:
    """Reads several SPEC=SHARE; what their shares leave is for the main set.

    Raises:
      UserError: one is written otherwise, or they leave nothing.

    >>> parse_mixture(["tfds:mine=0.25"])
    [Ingredient(spec='tfds:mine', share=0.25)]
    """
    found = [_parse(item) for item in items]
    if sum(ingredient.share for ingredient in found) >= 1:
        raise UserError(
            f"the shares of {', '.join(items)} leave nothing of the draws for the questions of"
            " --data; make their sum less than 1"
        )
    return found


def _parse(text: str) -> Ingredient:
    spec, _, share = text.rpartition("=")
    try:
        value = float(share)
    except ValueError:
        value = 0.0
    if not spec or not 0 < value < 1:
        raise UserError(
            f"{text!r} is no part of a mixture; it must be tfds:NAME=SHARE, the share of the draws"
            " being between 0 and 1"
        )
    return Ingredient(spec, value)


def merge(
    parts: Sequence[tuple[str, Sequence[Problem], Path]], folder: Path
) -> tuple[list[Problem], Path]:
    """All questions of several sets, over one folder of links to their databases.

    Ids become source/id. A database id that two sets use for different files becomes
    source.id in all but the first.

    Args:
      parts: (source, questions, folder of their databases).
      folder: for the links; those that are there are renewed.

    Raises:
      UserError: two parts have one name, or links cannot be made.
    """
    names = [source for source, _, _ in parts]
    if len(set(names)) < len(names):
        raise UserError(
            f"a mixture has the same set twice ({', '.join(names)}); give each set one share"
        )
    problems: list[Problem] = []
    taken: dict[str, Path | None] = {}
    for source, part, databases in parts:
        renamed: dict[str, str] = {}
        for problem in part:
            if problem.db_id not in renamed:
                target = _find(databases, problem.db_id)
                free = taken.setdefault(problem.db_id, target) == target
                renamed[problem.db_id] = problem.db_id if free else f"{source}.{problem.db_id}"
                taken[renamed[problem.db_id]] = target
            problems.append(
                replace(
                    problem,
                    question_id=f"{source}/{problem.question_id}",
                    db_id=renamed[problem.db_id],
                    source=source,
                )
            )
    _link({name: target for name, target in taken.items() if target is not None}, folder)
    return problems, folder


def _find(databases: Path, db_id: str) -> Path | None:
    """The database's file; None if there is none, which the check of the golds then tells."""
    try:
        return resolve_database(databases, db_id).resolve()
    except UserError:
        return None


def _link(targets: dict[str, Path], folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, target in targets.items():
            link = folder / f"{name}.sqlite"
            if link.is_symlink() and Path(os.readlink(link)) == target:
                continue
            # Made beside and renamed, so that a reader never finds it missing.
            draft = folder / f".{name}.sqlite.tmp"
            draft.unlink(missing_ok=True)
            draft.symlink_to(target)
            draft.replace(link)
    except OSError as error:
        raise UserError(
            f"{folder}: cannot link the databases of a mixture there ({error.strerror})"
        ) from error
