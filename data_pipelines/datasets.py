"""Datasets by name: `tfds:NAME`, as `--data` takes it.

    tfds:[FOLDER/]NAME[:VERSION][@SPLIT]

FOLDER holds datasets; without it $TFDS_DATA_DIR, else ~/tensorflow_datasets. Without a version the
newest is taken.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from data_pipelines.builder import read_dataset
from data_pipelines.provenance import check_databases, check_shards, read_provenance
from jax_t2sql.errors import UserError
from jax_t2sql.text2sql import Problem

PREFIX = "tfds:"
NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
VERSION = re.compile(r"\d+\.\d+\.\d+\Z")
_SPEC = re.compile(
    r"(?:(?P<folder>.*)/)?(?P<name>[^/:@]+)(?::(?P<version>[^/:@]+))?(?:@(?P<split>\w+))?"
)
# Held-out splits by the names that published sets give them, best for steering a run first.
HELDOUT_SPLITS = ("val", "validation", "dev", "mini_dev", "test")


@dataclass(frozen=True)
class DatasetSplit:
    """One split of a dataset, ready for use.

    Attributes:
      name: as people call it: name:version@split.
      problems: its questions.
      databases: folder of their databases.
      sha256: of its content.
    """

    name: str
    problems: Sequence[Problem]
    databases: Path
    sha256: str


def find_dataset(spec: str) -> tuple[Path, str | None]:
    """The folder of a dataset's version, and the split that the specification names, if any.

    Raises:
      UserError: it is written wrongly, or there is no such dataset.
    """
    found = _SPEC.fullmatch(spec.removeprefix(PREFIX))
    if not found or not spec.startswith(PREFIX):
        raise UserError(
            f"{spec!r} names no dataset; it must be tfds:NAME, tfds:FOLDER/NAME or"
            " tfds:NAME:VERSION@SPLIT"
        )
    default = os.environ.get("TFDS_DATA_DIR") or Path.home() / "tensorflow_datasets"
    folder = Path(default if found["folder"] is None else found["folder"] or "/")
    parent = folder / found["name"]
    versions = _versions(parent)
    if not versions:
        there = sorted(p.name for p in folder.iterdir() if _versions(p)) if folder.is_dir() else []
        hint = f"; datasets there: {', '.join(there)}" if there else ""
        raise UserError(
            f"{spec}: no dataset {found['name']} in {folder}{hint}. Make it with"
            " data_pipelines.import_data or data_pipelines.build, or name its folder:"
            " tfds:FOLDER/NAME"
        )
    version = found["version"] or versions[-1]
    if version not in versions:
        there = ", ".join(versions)
        raise UserError(f"{spec}: no version {version} in {parent}; choose one of {there}")
    return parent / version, found["split"]


def _versions(parent: Path) -> list[str]:
    """Version folders, oldest first."""
    if not parent.is_dir():
        return []
    names = [entry.name for entry in parent.iterdir() if VERSION.match(entry.name)]
    return sorted(names, key=lambda name: tuple(map(int, name.split("."))))


def open_split(
    spec: str, *, split: str, databases: Path | None = None, content: bool = False
) -> DatasetSplit:
    """Opens one split for training or evaluation, its files checked.

    Args:
      spec: tfds:…; a split that it names wins.
      split: the split to take otherwise.
      databases: folder of the databases, if not the one that the dataset was made with.
      content: check the databases by content, not by length alone.

    Raises:
      UserError: no such dataset or split, a changed file, or queries that cannot be run here.
    """
    folder, named = find_dataset(spec)
    split = named or split
    provenance = read_provenance(folder)
    if split not in provenance.splits:
        raise UserError(
            f"{spec}: no split {split!r}; there are {', '.join(provenance.splits)}. Name one:"
            f" {spec.partition('@')[0]}@SPLIT"
        )
    if provenance.dialect != "sqlite":
        raise UserError(
            f"{spec}: its queries are {provenance.dialect}, which cannot be run here; choose a"
            " dataset on SQLite"
        )
    check_shards(folder, provenance)
    place = databases or Path(provenance.splits[split].databases or "")
    check_databases(provenance, split, place, content=content)
    return DatasetSplit(
        name=f"{provenance.name}:{provenance.version}@{split}",
        problems=read_dataset(folder)[split],
        databases=place,
        sha256=provenance.fingerprint,
    )


def heldout_split(spec: str) -> str | None:
    """Name of the dataset's held-out split; None if it has none by a usual name."""
    splits = read_provenance(find_dataset(spec)[0]).splits
    return next((name for name in HELDOUT_SPLITS if name in splits), None)
