"""What a dataset was made from: the record beside its files, and checks against it."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import msgspec

from data_pipelines.checksums import FileRecord, check_file
from jax_t2sql.errors import UserError

FILE = "provenance.json"


@dataclass(frozen=True, kw_only=True)
class SplitRecord:
    """What became of one split.

    Attributes:
      questions: kept, those with an empty gold result among them.
      gold_empty: how many those are.
      quarantined: set aside, see quarantine.jsonl.
      gold_warnings: kept although part of the gold's answer is chance, see gold_warnings.jsonl.
      databases: absolute path of the folder of its databases; None for a dialect without.
    """

    questions: int
    gold_empty: int
    quarantined: int
    gold_warnings: int
    databases: str | None


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """How a dataset came about.

    Attributes:
      fingerprint: hash of all questions and databases; two datasets with the same are the same.
      made_with: version of this package, and the time limit of the check of the golds.
      split_rule: published, marks of the rows, or by hash.
      files: what the questions were read from.
      databases: each database file, its path below the folder of its split.
      shards: the dataset's own files.
    """

    name: str
    version: str
    title: str
    licence: str
    citation: str
    dialect: str
    fingerprint: str
    made_with: str
    split_rule: str
    splits: dict[str, SplitRecord]
    files: list[FileRecord]
    databases: dict[str, list[FileRecord]]
    shards: list[FileRecord]


def write_provenance(folder: Path, provenance: Provenance) -> None:
    """Writes the record into a dataset's folder."""
    text = json.dumps(dataclasses.asdict(provenance), indent=2, ensure_ascii=False)
    (folder / FILE).write_text(text + "\n", encoding="utf-8")


def read_provenance(folder: Path) -> Provenance:
    """Reads the record of a dataset's folder.

    Raises:
      UserError: there is none, or it is broken.
    """
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Provenance)
    except OSError as error:
        raise UserError(
            f"{folder} has no readable {FILE} ({error.strerror}); build the dataset with"
            " data_pipelines.import_data or data_pipelines.build"
        ) from None
    except msgspec.MsgspecError as error:
        raise UserError(f"{folder / FILE} is broken ({error}); build the dataset anew") from None


def check_shards(folder: Path, provenance: Provenance) -> None:
    """Checks that the dataset's own files are those that were written.

    Raises:
      UserError: one is gone or changed.
    """
    for record in provenance.shards:
        check_file(record, folder / record.path, remade="build the dataset anew")


def check_databases(provenance: Provenance, split: str, folder: Path, *, content: bool) -> None:
    """Checks the databases of a split against their record.

    Args:
      provenance: of the dataset.
      split: whose databases.
      folder: where they are now.
      content: hash them; False compares lengths alone.

    Raises:
      UserError: one is gone or changed.
    """
    for record in provenance.databases.get(split, []):
        check_file(
            record,
            folder / record.path,
            remade="name the right folder with --databases, or build a new --version",
            content=content,
        )
