"""What the programs that make datasets share: options, the SQL pool, the table at the end."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from data_pipelines.datasets import NAME, PREFIX, VERSION
from data_pipelines.prepare import Recipe, prepare
from data_pipelines.provenance import Provenance
from jax_t2sql.errors import UserError
from jax_t2sql.programs import raise_disk_fault
from jax_t2sql.rundir import make_folder


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How gold queries are run, and how schemas are measured."""

    workers: int = 2
    """Processes that run SQL."""
    seconds: float = 30.0
    """Time limit of a gold query."""
    tokenizer: Path | None = None
    """Hugging Face directory or GGUF file whose tokenizer measures the schemas."""


def make_dataset(recipe: Recipe, out: Path, limits: Limits) -> None:
    """Checks golds, writes the dataset and prints what became of it.

    Raises:
      UserError: bad options, or nothing usable is left.
    """
    from jax_t2sql.grading import GradingPool
    from jax_t2sql.sql import Limits as SqlLimits

    if not NAME.match(recipe.name):
        raise UserError(
            f"--name is {recipe.name!r}; it must be small letters, digits and _, a letter first"
        )
    if not VERSION.match(recipe.version):
        raise UserError(f"--version is {recipe.version!r}; it must be three numbers, as 1.0.0")
    if limits.workers < 1 or not 0.05 <= limits.seconds < math.inf:
        raise UserError(
            f"--workers is {limits.workers} and --seconds {limits.seconds:g}; they must be at"
            " least 1 and 0.05, and finite"
        )
    count = None if limits.tokenizer is None else _counter(limits.tokenizer)
    make_folder(out, "--out")
    try:
        with GradingPool(limits.workers, limits=SqlLimits(seconds=limits.seconds)) as pool:
            folder, provenance = prepare(
                recipe, out, pool=pool, seconds=limits.seconds, count=count, say=print
            )
    except OSError as error:
        raise_disk_fault(error, out, "it starts anew")
        raise
    _print(folder, provenance)


def _counter(path: Path) -> Callable[[str], int]:
    if path.is_dir():
        from jax_t2sql.models.tokenizer import Tokenizer

        tokenizer = Tokenizer.from_directory(path)
    else:
        from jax_t2sql.models.gguf_files import GGUFFile
        from jax_t2sql.models.gguf_tokenizer import gguf_tokenizer

        tokenizer = gguf_tokenizer(GGUFFile(path))
    return lambda text: len(tokenizer.encode(text))


def _print(folder: Path, provenance: Provenance) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{provenance.name} {provenance.version}, splits {provenance.split_rule}")
    for heading in ("split", "questions", "empty gold", "set aside", "doubtful gold", "databases"):
        table.add_column(heading, justify="left" if heading == "split" else "right")
    for name, split in provenance.splits.items():
        figures = (split.questions, split.gold_empty, split.quarantined, split.gold_warnings)
        databases = len(provenance.databases.get(name, ()))
        table.add_row(name, *map(str, figures), str(databases))
    console = Console(markup=False)  # names come from the user's files
    console.print(table)
    rows = [json.loads(x) for x in (folder / "schemas.jsonl").read_text().splitlines()]
    if rows:
        unit = "characters" if rows[0]["tokens"] is None else "tokens"
        sizes = sorted(row[unit] for row in rows)
        console.print(
            f"schemas: {sizes[len(sizes) // 2]:,} {unit} in the median, {sizes[-1]:,} at most;"
            f" {sum(row['described'] for row in rows):,} of"
            f" {sum(row['columns'] for row in rows):,} columns described"
        )
    console.print(f"in {folder}; train with --data {PREFIX}{folder.parent}", soft_wrap=True)
