"""What `--data` and its like name: a question file with a folder of databases, or a dataset."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jax_t2sql.errors import UserError
from jax_t2sql.text2sql import Problem, load_problems

PREFIX = "tfds:"


@dataclass(frozen=True)
class OpenData:
    """Questions, ready for use.

    Attributes:
      name: the source, for mixtures; "" of a plain file.
      problems: the questions.
      databases: folder of their databases, or one file.
      sha256: of the questions' content.
    """

    name: str
    problems: Sequence[Problem]
    databases: Path
    sha256: str


def is_dataset(spec: str | Path | None) -> bool:
    """Whether this names a dataset, not a file."""
    return spec is not None and str(spec).startswith(PREFIX)


def open_data(spec: str, databases: str | Path | None, *, split: str = "train") -> OpenData:
    """Opens a question file or a dataset.

    Args:
      spec: path of a file, or tfds:… (see `data_pipelines.datasets`).
      databases: folder of the databases; a dataset knows its own.
      split: of a dataset whose specification names none.

    Raises:
      UserError: it cannot be opened.
    """
    if is_dataset(spec):
        from data_pipelines.datasets import open_split

        found = open_split(spec, split=split, databases=Path(databases) if databases else None)
        name = found.name.partition(":")[0]
        return OpenData(name, found.problems, found.databases, found.sha256)
    if databases is None:
        raise UserError(f"{spec} is a file of questions, which needs --databases")
    problems = load_problems(spec)
    digest = hashlib.sha256(Path(spec).read_bytes()).hexdigest()
    return OpenData("", problems, Path(databases), digest)


def heldout_split(spec: str) -> str | None:
    """Name of a dataset's held-out split; None for files, and where there is none."""
    if not is_dataset(spec):
        return None
    from data_pipelines.datasets import heldout_split as find

    return find(spec)
