"""Make the dataset of a published question set from a local copy.

    python -m data_pipelines.build --dataset bird_verified --copy DIR [--databases DIR] --out D

Nothing is downloaded. The files are found by their usual names below DIR, or named by --file
SPLIT=PATH. Splits are those published; gold queries are checked as by data_pipelines.import_data,
which also says what the folder of a dataset holds. Splits that the copy lacks are left out.
"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from data_pipelines.local_copies import SplitCopy, read_rows, read_split
from data_pipelines.prepare import Recipe, SplitInput
from data_pipelines.program import Limits, make_dataset
from data_pipelines.sources import SOURCES, Source
from jax_t2sql.errors import UserError
from jax_t2sql.programs import run_program


@dataclass(frozen=True, kw_only=True)
class BuildArgs:
    """Options of the program."""

    dataset: Literal[tuple(SOURCES)]
    """Which set."""
    copy: Path
    """Folder of the local copy."""
    out: Path
    """Folder of datasets."""
    databases: Path | None = None
    """Folder of the databases, if it is none of the usual ones of the copy."""
    file: tuple[str, ...] = ()
    """SPLIT=PATH: the questions of a split, if they have none of the usual names."""
    solve_rates: Path | None = None
    """JSON lines with question_id and solve_rate, the share of right answers when each question of
    `train` was first visited. Adds the split train_hard."""
    hard_below: float = 1.0
    """Solve rate below which a question is hard."""
    limits: tyro.conf.OmitArgPrefixes[Limits] = Limits()
    """How golds are run."""


def main(argv: list[str] | None = None) -> int:
    """The program. Returns the exit status."""
    args = tyro.cli(
        BuildArgs,
        args=sys.argv[1:] if argv is None else argv,
        prog="python -m data_pipelines.build",
        description=__doc__,
    )
    source = SOURCES[args.dataset]
    if not args.copy.is_dir():
        raise UserError(f"--copy {args.copy}: no such directory; name the folder of the local copy")
    copies = _read(source, args)
    for found in copies:
        published = source.splits[found.name].published
        if published not in (None, len(found.problems)):
            print(
                f"note: {found.name} has {len(found.problems)} questions, the release has"
                f" {published}: another release, or part of one"
            )
    splits = {
        found.name: SplitInput(
            problems=found.problems, databases=found.databases, rejected=found.rejected
        )
        for found in copies
    }
    if args.solve_rates is not None:
        splits["train_hard"] = _hard(splits.get("train"), args.solve_rates, args.hard_below)
    recipe = Recipe(
        name=source.name,
        version=source.version,
        title=source.title,
        splits=splits,
        split_rule="published",
        files=list(dict.fromkeys(path for found in copies for path in found.files)),
        licence=source.licence,
        citation=source.citation,
        homepage=source.homepage,
        dialect=source.dialect,
    )
    make_dataset(recipe, args.out, args.limits)
    return 0


def _read(source: Source, args: BuildArgs) -> list[SplitCopy]:
    named: dict[str, list[Path]] = {}
    for item in args.file:
        split, _, path = item.partition("=")
        if split not in source.splits or not path:
            raise UserError(
                f"--file {item}: it must be SPLIT=PATH, the split one of {', '.join(source.splits)}"
            )
        named.setdefault(split, []).append(Path(path))
    found = [
        read_split(source, name, args.copy, files=named.get(name, ()), databases=args.databases)
        for name in source.splits
    ]
    copies = [copy for copy in found if copy is not None]
    if not copies:
        names = [" + ".join(files) for split in source.splits.values() for files in split.files]
        raise UserError(
            f"{args.copy} has no file of {source.name}; looked for"
            f" {', '.join(dict.fromkeys(names))}. Name one with --file SPLIT=PATH"
        )
    return copies


def _hard(train: SplitInput | None, path: Path, below: float) -> SplitInput:
    """The questions of train that were not always solved when they were first visited."""
    if train is None:
        raise UserError("--solve-rates needs a split train, which this copy does not have")
    rates = {}
    for number, row in enumerate(read_rows(path), start=1):
        rate = row.get("solve_rate")
        if "question_id" not in row or not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise UserError(
                f"{path}: row {number} must have question_id and a solve_rate from 0 to 1"
            )
        rates.setdefault(str(row["question_id"]), rate)  # of the first visit
    hard = [p for p in train.problems if rates.get(p.question_id, math.inf) < below]
    if not hard:
        raise UserError(f"{path}: no question of train has a solve rate below {below:g}")
    return SplitInput(problems=hard, databases=train.databases)


if __name__ == "__main__":
    run_program(main, interrupted="interrupted; nothing was written")
