"""The options of `python -m data_pipelines.onedb`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from data_pipelines.onedb.sampling import Sampling


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What is in databases: tables, kinds of columns, keys, joins, oddities."""

    databases: tyro.conf.Positional[tuple[Path, ...]]
    """SQLite files; several are compared in one table."""
    json: bool = False
    """Print JSON instead."""
    policy: str | None = None
    """local:MODEL or local:MODEL+ADAPTER: also sample answers to fresh questions, and tell pass@k
    and mixed groups by database."""
    questions: int = 40
    """Fresh questions a database, for --policy."""
    sampling: tyro.conf.OmitArgPrefixes[Sampling] = field(default_factory=Sampling)
    """How --policy answers."""


@dataclass(frozen=True, kw_only=True)
class Legend:
    """Draft or check the legend: the words that questions and prompts use."""

    database: tyro.conf.Positional[Path]
    """SQLite file."""
    out: Path | None = None
    """Write a draft here; an existing file is not replaced."""
    check: Path | None = None
    """Check this legend against the database instead."""
    notes: Path | None = None
    """Write the legend, that of --check if given, as a text for prompts: purposes, meanings, stored
    values, joins. Give it to --prompt.notes of jax_t2sql.train and --notes of jax_t2sql.eval."""
    model: str | None = None
    """MODEL@URL of an OpenAI-compatible endpoint that finds words for the draft."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """Make a pool of questions with queries that are right by construction."""

    database: tyro.conf.Positional[Path]
    """SQLite file."""
    out: Path
    """Question file to write; OUT.report.json and OUT.html lie beside it."""
    rows: int = 2000
    """Questions wanted; there are more where the database has more join paths than that."""
    seed: int = 0
    """The same seed, database and legend give the same file."""
    legend: Path | None = None
    """Legend file; without it one is drafted from names and descriptions."""
    leak_check: Path | None = None
    """Question file whose queries and results must not be in the pool."""
    evidence_share: float = 0.3
    """Share of the rows that carry evidence lines."""
    evidence: Literal["question", "legend"] = "question"
    """Lines about the question's own words, or these and the whole legend."""
    paraphrase: str | None = None
    """MODEL@URL of an OpenAI-compatible endpoint that rewords the rows; what fails the reading
    check keeps its wording."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Print rows of a pool with their results, for a person to read."""

    pool: tyro.conf.Positional[Path]
    """Question file of `build`."""
    databases: Path
    """Folder of databases, or the one file."""
    rows: int = 25
    """How many, spread over the families."""
    seed: int = 0
    """Which ones."""
    readers: tuple[str, ...] = ()
    """MODEL@URL of language models that read the rows: those that two object to are printed."""


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Compare what the queries of a pool and of a test set use; names what the pool lacks."""

    pool: tyro.conf.Positional[Path]
    """Question file."""
    test: tyro.conf.Positional[Path]
    """Question file to compare with; its questions on the pool's databases count."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Before training: what an untrained policy does under variants of the prompt."""

    pool: tyro.conf.Positional[Path]
    """Question file."""
    databases: Path
    """Folder of databases, or the one file."""
    policy: str
    """local:MODEL or local:MODEL+ADAPTER."""
    variants: tuple[str, ...] = ("bare", "evidence", "legend")
    """Of bare, evidence, legend, tools, tools+legend."""
    legend: Path | None = None
    """Legend file for the variants with one; drafted if not given."""
    questions: int = 50
    """How many, spread over the families."""
    by_database: bool = False
    """One row a variant and database."""
    sampling: tyro.conf.OmitArgPrefixes[Sampling] = field(default_factory=Sampling)
    """How the policy answers."""


@dataclass(frozen=True, kw_only=True)
class Perturbed:
    """After training: the share of rewarded queries that stop matching on perturbed data."""

    records: tyro.conf.Positional[Path]
    """samples.jsonl or evaluations/*.jsonl of a run, or the --out of jax_t2sql.eval."""
    databases: Path
    """Folder of databases, or the one file."""
    copies: int = 10
    """Perturbed copies of each database."""
    limit: int | None = None
    """At most so many distinct pairs of queries."""
    seed: int = 0
    """Of the copies."""


@dataclass(frozen=True, kw_only=True)
class Tiny:
    """Cut a pool into warm-up, training and held-out files, with a small model to train."""

    pool: tyro.conf.Positional[Path]
    """Question file of `build`."""
    out: Path
    """Folder for warmup.jsonl, train.jsonl, heldout.jsonl and model/; it must not exist."""
    warmup: int = 500
    """Rows for the supervised warm-up."""
    heldout: int = 300
    """Rows held out."""
    seed: int = 0
    """Of the cut and of the model's weights."""


Command = (
    Annotated[Scan, tyro.conf.subcommand("scan")]
    | Annotated[Legend, tyro.conf.subcommand("legend")]
    | Annotated[Build, tyro.conf.subcommand("build")]
    | Annotated[Audit, tyro.conf.subcommand("audit")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Gate, tyro.conf.subcommand("gate")]
    | Annotated[Perturbed, tyro.conf.subcommand("perturbed")]
    | Annotated[Tiny, tyro.conf.subcommand("tiny")]
)
