"""Make a dataset of your own questions and SQLite databases.

    python -m data_pipelines.import_data --questions Q --databases DIR --name mine --out D

Every gold query is run and graded against itself; those that fail are set aside, with the reason.
Rows that all have a field `split` keep their splits, else 15 % are held out as `val`, by hash of
database and gold SQL. Then train with --data tfds:D/mine, or mix it in with --data.mix.

    D/mine/1.0.0/     ArrayRecord files, a TFDS dataset that needs no TensorFlow to be read
      provenance.json       checksums of questions, databases and shards, splits, counts
      quarantine.jsonl      questions set aside, with the reason
      gold_warnings.jsonl   questions kept although part of their answer is chance
      schemas.jsonl         size of each schema as prompts show it
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from data_pipelines.datasets import HELDOUT_SPLITS
from data_pipelines.local_copies import read_rows
from data_pipelines.prepare import Recipe, SplitInput
from data_pipelines.program import Limits, make_dataset
from data_pipelines.splits import HELDOUT_SHARE, split_by_hash, split_by_marks
from jax_t2sql.errors import UserError
from jax_t2sql.programs import run_program
from jax_t2sql.text2sql import load_problems


@dataclass(frozen=True, kw_only=True)
class ImportArgs:
    """Options of the program."""

    questions: Path
    """Question file (JSONL or JSON array; our, BIRD's or Spider's field names)."""
    databases: Path
    """Folder with <id>/<id>.sqlite or <id>.sqlite, or one SQLite file. Column descriptions are
    read from a folder database_description beside a database, as BIRD has them."""
    name: str
    """Name of the dataset: small letters, digits and _."""
    out: Path
    """Folder of datasets."""
    version: str = "1.0.0"
    """Three numbers. A version is never changed: give another when the data change."""
    eval_share: float = HELDOUT_SHARE
    """Share held out where the rows have no splits of their own."""
    limits: tyro.conf.OmitArgPrefixes[Limits] = Limits()
    """How golds are run."""


def main(argv: list[str] | None = None) -> int:
    """The program. Returns the exit status."""
    args = tyro.cli(
        ImportArgs,
        args=sys.argv[1:] if argv is None else argv,
        prog="python -m data_pipelines.import_data",
        description=__doc__,
    )
    if not 0 < args.eval_share < 1:
        raise UserError(f"--eval-share is {args.eval_share}; it must be between 0 and 1")
    from jax_t2sql.preflight import check_all, check_folder, check_questions

    check_all(
        [
            lambda: check_folder(args.databases),
            lambda: check_questions(args.questions, args.databases),
        ]
    )
    splits, rule = _splits(args)
    recipe = Recipe(
        name=args.name,
        version=args.version,
        title=f"{args.name}: questions from {args.questions.name}",
        splits={
            name: SplitInput(problems=problems, databases=args.databases)
            for name, problems in splits.items()
        },
        split_rule=rule,
        files=[args.questions],
    )
    make_dataset(recipe, args.out, args.limits)
    return 0


def _splits(args: ImportArgs) -> tuple[dict[str, list], str]:
    problems = [replace(p, source=args.name) for p in load_problems(args.questions)]
    marks = [row.get("split") for row in read_rows(args.questions)]
    marks = [mark if isinstance(mark, str) and mark.isidentifier() else None for mark in marks]
    marked = split_by_marks(problems, marks)
    if marked is not None:
        return marked, "marks of the rows"
    train, heldout = split_by_hash(problems, args.eval_share)
    if not train or not heldout:
        raise UserError(
            f"{args.questions} has too few questions with different gold SQL to hold some out; add"
            f" some, or mark each row with a field `split`: train or {HELDOUT_SPLITS[0]}"
        )
    return {"train": train, "val": heldout}, f"by hash, {args.eval_share:g} held out"


if __name__ == "__main__":
    run_program(main, interrupted="interrupted; nothing was written")
