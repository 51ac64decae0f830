"""The benchmarks by name: what each needs, where that is looked for, and what is missing."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from data_pipelines.local_copies import SplitCopy, read_split
from data_pipelines.sources import SOURCES, Source
from jax_t2sql.errors import UserError
from jax_t2sql.sql import resolve_database

SNOW_DATABASES = "resource/databases"  # descriptions of the databases on Snowflake
FOLDER_VARIABLE = "JAX_T2SQL_BENCHMARKS"


@dataclass(frozen=True, kw_only=True)
class Suite:
    """One benchmark.

    Attributes:
      source, split: where its files lie in a local copy.
      key: name of its own answer key.
      published: how many questions it has, where that is known.
    """

    source: Source
    split: str
    key: str = "gold"

    @property
    def published(self) -> int | None:
        return self.source.splits[self.split].published


def _lite() -> Source:
    """All of Spider 2.0-Lite; the dialects of its other engines are known by missing databases."""
    return replace(
        SOURCES["spider2_sqlite"], name="spider2_lite", title="Spider 2.0-Lite", prefix=""
    )


SUITES = {
    "arcwise-plat-full": Suite(source=SOURCES["arcwise_plat_full"], split="test", key="corrected"),
    "arcwise-plat-sql": Suite(source=SOURCES["arcwise_plat_sql"], split="test", key="corrected"),
    "bird-dev": Suite(source=SOURCES["bird"], split="dev", key="original"),
    "bird-mini-dev": Suite(source=SOURCES["bird"], split="mini_dev", key="original"),
    "spider-dev": Suite(source=SOURCES["spider"], split="dev"),
    "spider2-sqlite": Suite(source=SOURCES["spider2_sqlite"], split="test"),
    "spider2-lite": Suite(source=_lite(), split="test"),
    "spider2-snow": Suite(source=SOURCES["spider2_snow"], split="test"),
    "geoquery": Suite(source=SOURCES["geoquery"], split="test"),
}

# Releases share file names (dev.json), so a folder in the folder must be named for its benchmark.
_BIRD, _SPIDER2 = re.compile("bird|arcwise|mini.?dev|dev_20"), re.compile("spider.?2")
_FAMILIES = {
    "spider": re.compile("spider(?!.?2)"),
    "geoquery": re.compile("geo|text2sql"),
    **dict.fromkeys(("spider2_sqlite", "spider2_lite", "spider2_snow"), _SPIDER2),
    **dict.fromkeys(("bird", "arcwise_plat_full", "arcwise_plat_sql"), _BIRD),
}


@dataclass(frozen=True)
class Found:
    """What a search for a suite found.

    Attributes:
      copy: its questions, None if there are none; `copy.databases` may lack some or all databases.
      missing: db_id of databases that are not there.
      fault: why the questions cannot be used, "" if they can.
    """

    copy: SplitCopy | None
    missing: tuple[str, ...] = ()
    fault: str = ""


def suite_named(name: str) -> Suite:
    """Raises UserError for a name that is none."""
    if name not in SUITES:
        raise UserError(f"--suite is {name!r}; it must be one of {', '.join(SUITES)} (see --list)")
    return SUITES[name]


def benchmarks_folder(given: Path | None) -> Path:
    """Where local copies lie.

    Raises:
      UserError: a folder was named that does not exist.
    """
    named = given or os.environ.get(FOLDER_VARIABLE)
    if named and not Path(named).is_dir():
        option = "--benchmarks" if given else FOLDER_VARIABLE
        raise UserError(f"{option} {str(named)!r} is no folder; name that of the benchmarks")
    return given or Path(os.environ.get(FOLDER_VARIABLE) or "data")


def find_suite(suite: Suite, folder: Path, databases: Path | None = None) -> Found:
    """Looks for a suite in the folder itself and in the folders in it.

    Of several copies the one with most questions whose database is there is taken.

    Args:
      databases: folder of the databases, instead of the copy's own.
    """
    best, best_rank, fault = Found(None), (-1, -1), ""
    for place in _places(suite, folder):
        try:
            copy = _read(suite, place, databases)
        except UserError as error:
            fault = fault or str(error)
            continue
        if copy is None:
            continue
        asked = [*copy.problems, *(problem for problem, _ in copy.rejected)]
        missing = _missing([problem.db_id for problem in asked], copy.databases)
        usable = sum(problem.db_id not in missing for problem in copy.problems)
        if (usable, len(asked)) > best_rank:
            best, best_rank = Found(copy, missing), (usable, len(asked))
    return best if best.copy is not None else replace(best, fault=fault)


def _places(suite: Suite, folder: Path) -> Iterator[Path]:
    yield folder
    if folder.is_dir():
        for entry in sorted(folder.iterdir()):
            if entry.is_dir() and _FAMILIES[suite.source.name].search(entry.name.lower()):
                yield entry


def _read(suite: Suite, place: Path, databases: Path | None) -> SplitCopy | None:
    """The copy at a place; one without a folder of databases has `place` for it, where none is."""
    try:
        return read_split(suite.source, suite.split, place, databases=databases)
    except UserError as error:
        if "none of the folders" not in str(error):
            raise
        return read_split(suite.source, suite.split, place, databases=place)


def _missing(db_ids: Sequence[str], databases: Path | None) -> tuple[str, ...]:
    missing = []
    for db_id in dict.fromkeys(db_ids):
        try:
            if databases is not None:
                resolve_database(databases, db_id)
        except UserError:
            missing.append(db_id)
    return tuple(missing)


def not_found(name: str, suite: Suite, folder: Path, found: Found) -> UserError:
    """Says what a suite needs that was not found."""
    split = suite.source.splits[suite.split]
    files = " or ".join(" with ".join(names) for names in split.files)
    reason = f" ({found.fault})" if found.fault else ""
    return UserError(
        f"suite {name}: no question file {files} in {folder} or a folder in it{reason}. Get"
        f" {suite.source.title} ({suite.source.homepage}) and name the folder of the copy with"
        f" --benchmarks or {FOLDER_VARIABLE}"
    )


def print_suites(folder: Path) -> None:
    """Prints, for --list, every suite with what it needs and what of that is there."""
    print(f"looked for in {folder} and the folders in it (--benchmarks or {FOLDER_VARIABLE})")
    for name, suite in SUITES.items():
        print(f"\n{name}: {suite.source.title}")
        for line in _state(suite, find_suite(suite, folder)):
            print(f"  {line}")


def _state(suite: Suite, found: Found) -> list[str]:
    split = suite.source.splits[suite.split]
    files = " or ".join(" with ".join(names) for names in split.files)
    if found.copy is None:
        fault = [f"cannot be used: {found.fault}"] if found.fault else []
        return [f"questions  MISSING: {files} ({suite.source.homepage})", *fault]
    copy = found.copy
    count = len(copy.problems) + len(copy.rejected)
    short = suite.published and count < suite.published
    whole = f" of {suite.published:,}, the others MISSING" if short else ""
    lines = [f"questions  {count:,}{whole}: {copy.files[0]}"]
    if copy.rejected:
        lines.append(f"gold SQL   MISSING for {len(copy.rejected):,} of them")
    if suite.source.dialect == "snowflake":
        return [*lines, "databases  on Snowflake: SNOWFLAKE_ACCOUNT, SNOWFLAKE_USER and so on"]
    every = {problem.db_id for problem in (*copy.problems, *(p for p, _ in copy.rejected))}
    there = len(every) - len(found.missing)
    lines.append(f"databases  {there} of {len(every)}: {copy.databases}")
    if found.missing:
        needs = " or ".join(f"{place}/ID/ID.sqlite" for place in split.databases)
        lines.append(f"           MISSING: {', '.join(found.missing[:6])}, … as {needs}")
    return lines
