"""Check a dataset and its databases against the checksums that were taken when it was made.

    python -m data_pipelines.verify --data tfds:D/mine [--databases DIR]

Programs that use a dataset check its own files, and of databases the length alone; this reads them
all. The exit status is 0 if nothing has changed, else 2 with the first change.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from data_pipelines.builder import read_dataset
from data_pipelines.datasets import find_dataset
from data_pipelines.provenance import check_databases, check_shards, read_provenance
from jax_t2sql.programs import run_program


@dataclass(frozen=True, kw_only=True)
class VerifyArgs:
    """Options of the program."""

    data: str
    """tfds:NAME or tfds:FOLDER/NAME:VERSION."""
    databases: Path | None = None
    """Folder of the databases, if they have moved."""


def main(argv: list[str] | None = None) -> int:
    """The program. Returns the exit status."""
    args = tyro.cli(
        VerifyArgs,
        args=sys.argv[1:] if argv is None else argv,
        prog="python -m data_pipelines.verify",
        description=__doc__,
    )
    folder, _ = find_dataset(args.data)
    provenance = read_provenance(folder)
    check_shards(folder, provenance)
    for name, problems in read_dataset(folder).items():
        split = provenance.splits[name]
        place = args.databases or (Path(split.databases) if split.databases else None)
        if place is not None:
            check_databases(provenance, name, place, content=True)
        files = len(provenance.databases.get(name, ()))
        print(f"{name}: {len(problems)} questions, {files} files of databases as recorded")
    return 0


if __name__ == "__main__":
    run_program(main, interrupted="interrupted")
