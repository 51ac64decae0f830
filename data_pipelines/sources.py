"""The published question sets: where their files lie in a local copy, their splits and licences.

Nothing is downloaded. A local copy is found by its usual file names, of the original release or of
plain JSON lines with one file a split; any file can be named outright.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Layout = Literal["rows", "spider2", "templates"]


@dataclass(frozen=True, kw_only=True)
class SplitFiles:
    """Where one split lies, below the folder of a local copy.

    Attributes:
      files: alternatives, the first wins whose files are all there; a split may have several files.
      databases: alternatives of the folder of its databases.
      published: how many questions the release has, where that is known.
      mark: take only rows whose field `split` says this.
    """

    files: tuple[tuple[str, ...], ...]
    databases: tuple[str, ...] = ()
    published: int | None = None
    mark: str | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
    """A published question set.

    Attributes:
      name: of the dataset that is built.
      title: for descriptions.
      version: of the dataset; raised when what is built from the same files changes.
      licence, citation, homepage: of the data.
      splits: by name.
      layout: rows: a question a row, in our, BIRD's or Spider's fields. spider2: questions without
        gold SQL, which lies in files of its own. templates: questions and queries with variables.
      dialect: of the gold queries. Snowflake's cannot be run or checked here.
      prefix: take only questions whose id starts so.
    """

    name: str
    title: str
    version: str = "1.0.0"
    licence: str
    citation: str
    homepage: str
    splits: Mapping[str, SplitFiles] = field(default_factory=dict)
    layout: Layout = "rows"
    dialect: Literal["sqlite", "snowflake"] = "sqlite"
    prefix: str = ""


_BIRD = dict(
    licence="CC BY-SA 4.0",
    citation="Li et al., Can LLM Already Serve as a Database Interface? BIRD, NeurIPS 2023",
    homepage="https://bird-bench.github.io",
)
_SPIDER2 = dict(
    licence="MIT",
    citation="Lei et al., Spider 2.0, ICLR 2025",
    homepage="https://spider2-sql.github.io",
    layout="spider2",
)
_TRAIN_DATABASES = ("train/train_databases", "train_databases", "database", "databases")
_DEV_DATABASES = (
    *("dev/dev_databases", "dev_20240627/dev_databases", "dev_databases"),
    *("MINIDEV/dev_databases", "minidev/MINIDEV/dev_databases", "database", "databases"),
)


def _arcwise(name: str, title: str) -> Source:
    return Source(
        name=f"arcwise_plat_{name}",
        title=title,
        splits={
            "test": SplitFiles(
                files=((f"arcwise_plat_{name}.jsonl",), (f"arcwise_plat_{name}.json",)),
                databases=_DEV_DATABASES,
                published=498,
            )
        },
        **_BIRD,
    )


SOURCES = {
    source.name: source
    for source in (
        Source(
            name="bird",
            title="BIRD: train, dev and mini-dev as released",
            splits={
                "train": SplitFiles(
                    files=(("train/train.json",), ("train.json",), ("bird_train_original.jsonl",)),
                    databases=_TRAIN_DATABASES,
                    published=9428,
                ),
                "dev": SplitFiles(
                    files=(
                        ("dev/dev.json",),
                        ("dev_20240627/dev.json",),
                        ("dev.json",),
                        ("bird_dev_original.jsonl",),
                    ),
                    databases=_DEV_DATABASES,
                    published=1534,
                ),
                "mini_dev": SplitFiles(
                    files=(
                        ("mini_dev_sqlite.json",),
                        ("MINIDEV/mini_dev_sqlite.json",),
                        ("minidev/MINIDEV/mini_dev_sqlite.json",),
                        ("bird_mini_dev_original.jsonl",),
                    ),
                    databases=_DEV_DATABASES,
                    published=500,
                ),
            },
            **_BIRD,
        ),
        Source(
            name="bird_verified",
            title="BIRD-Verified (Platinum): corrected questions, evidence and SQL of BIRD train",
            splits={
                "train": SplitFiles(
                    files=(("bird_verified_train.jsonl",), ("bird_verified_train.json",)),
                    databases=_TRAIN_DATABASES,
                    published=2064,
                ),
                "val": SplitFiles(
                    files=(("bird_verified_val.jsonl",), ("bird_verified_val.json",)),
                    databases=_TRAIN_DATABASES,
                    published=398,
                ),
            },
            **(_BIRD | {"citation": "ReViSQL: BIRD-Verified, 2026; on BIRD, NeurIPS 2023"}),
        ),
        _arcwise("full", "Arcwise-Plat-Full: BIRD mini-dev, questions, evidence, SQL corrected"),
        _arcwise("sql", "Arcwise-Plat-SQL: BIRD mini-dev, SQL corrected"),
        Source(
            name="spider",
            title="Spider 1.0",
            licence="CC BY-SA 4.0",
            citation="Yu et al., Spider, EMNLP 2018",
            homepage="https://yale-lily.github.io/spider",
            splits={
                "train": SplitFiles(
                    files=(
                        ("train_spider.json", "train_others.json"),
                        ("spider_train/questions.jsonl",),
                        ("train_spider.json",),
                    ),
                    databases=("database", "spider_train/database"),
                ),
                "dev": SplitFiles(
                    files=(("dev.json",), ("spider_dev/questions.jsonl",)),
                    databases=("database", "spider_dev/database"),
                    published=1034,
                ),
            },
        ),
        Source(
            name="spider2_sqlite",
            title="Spider 2.0-Lite, the questions on local SQLite files",
            splits={
                "test": SplitFiles(
                    files=(("spider2-lite.jsonl",), ("spider2-lite/spider2-lite.jsonl",)),
                    databases=(
                        "resource/databases/spider2-localdb",
                        "spider2-lite/resource/databases/spider2-localdb",
                    ),
                )
            },
            prefix="local",
            **_SPIDER2,
        ),
        Source(
            name="spider2_snow",
            title="Spider 2.0-Snow: questions on Snowflake",
            splits={
                "test": SplitFiles(
                    files=(("spider2-snow.jsonl",), ("spider2-snow/spider2-snow.jsonl",)),
                )
            },
            dialect="snowflake",
            **_SPIDER2,
        ),
        Source(
            name="geoquery",
            title="GeoQuery in SQL, by question split",
            licence="none stated",
            citation="Finegan-Dollak et al., Improving Text-to-SQL Evaluation, ACL 2018",
            homepage="https://github.com/jkkummerfeld/text2sql-data",
            splits={
                mark: SplitFiles(
                    files=(
                        ("geography/questions.jsonl",),
                        ("data/geography.json",),
                        ("geography.json",),
                    ),
                    databases=("geography", "data", "."),
                    mark=mark,
                )
                for mark in ("train", "dev", "test")
            },
            layout="templates",
        ),
    )
}
