"""Options of the program, and their bounds."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from jax_t2sql.errors import UserError


@dataclass(frozen=True, kw_only=True)
class EvalArgs:
    """Options of the program."""

    policy: str | None = None
    """Who answers: local:MODEL[+ADAPTER] (in this process), vllm:URL[+ADAPTER],
    openai:URL (any chat-completions endpoint) or file:PREDICTIONS (JSON lines, BIRD's JSON object
    or Spider's one query a line). Without it only --list works."""
    suite: str | None = None
    """A benchmark: see --list."""
    list_suites: Annotated[bool, tyro.conf.arg(name="list")] = False
    """Say of every suite what it needs, where that is looked for and what is missing, and end."""
    benchmarks: Path | None = None
    """Folder with local copies of the benchmarks; JAX_T2SQL_BENCHMARKS if not given, else data."""
    data: str | None = None
    """Own questions instead of a suite: a file (JSONL or JSON array; our, BIRD's or Spider's field
    names), or a dataset: tfds:NAME, tfds:FOLDER/NAME:VERSION@SPLIT; its held-out split if none is
    named."""
    databases: Path | None = None
    """Folder with <id>/<id>.sqlite or <id>.sqlite, or one SQLite file. Suites and datasets know
    their own."""
    keys: str | None = None
    """More answer keys to score against, NAME=FILE,NAME=SUITE,…: gold queries for the same question
    ids. Where a name is that of the questions' own key it takes its place. Questions on which the
    keys disagree are listed."""
    allow_missing: bool = False
    """Leave out questions whose database (or gold query) is missing, and say in the headline how
    many."""
    out: Path = Path("runs/eval")
    """Folder of the evaluation. What was done in it is gone on with, not repeated; another
    evaluation needs another folder."""
    questions: int | None = None
    """Ask only this many, spread evenly over the file."""

    candidates: int = 0
    """Sampled answers a question, for self-consistency and pass@k, besides the greedy one."""
    greedy: bool = True
    """Give a greedy answer to each question."""
    temperature: float = 1.0
    """Of the candidates; top-p is 1."""
    seed: int = 0
    """Decides what is sampled, and ties of votes."""
    show_evidence: Literal["with", "without", "both"] = "with"
    """Put the external knowledge into the prompt, leave it out, or answer every question both
    ways."""

    style: Literal["direct", "tools", "question"] = "direct"
    """How questions are put: see --prompt.style of jax_t2sql.train."""
    max_turns: int = 5
    """SQL calls an episode may make (tools)."""
    max_tokens: int = 512
    """Tokens sampled a turn."""
    max_context: int | None = None
    """Tokens of a whole episode; the model's limit, at most 8,192, if not given."""
    schema_tokens: int | None = None
    """Most tokens of a schema: see --prompt.schema-tokens of jax_t2sql.train, as for the next."""
    notes: str | None = None
    """Said of a database after its schema: a text file, or a folder with DB_ID.txt."""
    evidence: Literal["plain", "structured"] = "plain"
    """How external knowledge is put, and what is asked about it."""
    tool_format: Literal[
        "auto", "hermes", "qwen3_coder", "glm", "llama", "kimi", "deepseek", "plain"
    ] = "auto"
    """How tool calls are written (tools)."""
    worked_example: bool = True
    """Show one solved question (tools)."""
    reasoning_effort: Literal["low", "medium", "high"] | None = None
    """Say in the prompt how much to think."""

    grader: str = "question"
    """Graders side by side, the first of them for the headline: question (each question's own
    method), set, multiset, list, bird, suite, equivalence, soft-f1, r-ves; separated by commas."""
    workers: int = 2
    """Processes that run SQL."""
    seconds: float = 30.0
    """Time limit of a query."""
    gold_folder: Path | None = None
    """Keep the results of gold queries in this folder, for later runs too."""
    memo: Path | None = None
    """Keep verdicts in this file, for other evaluations of the same predictions."""
    proxy: float = 0.9296
    """Accuracy to test against; the default is that of people on BIRD."""
    prices: Path | None = None
    """Price table for the cost of an endpoint."""
    device_hours: float | None = None
    """Device-hours that answering took, for the cost of a model of one's own."""
    device_hour_price: float | None = None
    """Price of a device-hour in dollars."""
    write_format: Literal["bird", "spider"] | None = None
    """Write the answers as a submission too: OUT/predictions.json (bird), .sql (spider)."""

    model: str | None = None
    """openai: name of the model; file: its name in the price table; vllm: folder with config.json
    and tokenizer.json of the served model, if the server's path to it does not lie here."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the model (local)."""
    rows: int = 32
    """Answers decoded side by side (local)."""
    concurrency: int = 32
    """Answers in the making at once (vllm, openai)."""
    retries: int = 8
    """How often a request is repeated that met a fault that may pass (openai)."""
    request_seconds: float = 600.0
    """Time limit of a request (vllm, openai)."""
    api_key_variable: str = "OPENAI_API_KEY"
    """Environment variable with the endpoint's key (openai); without it none is sent."""


_BOUNDS = {
    "questions": (1, math.inf),
    "candidates": (0, 1024),
    "temperature": (0.01, 100),
    "max_turns": (1, 1000),
    "max_tokens": (1, math.inf),
    "max_context": (2, math.inf),
    "schema_tokens": (1, math.inf),
    "rows": (1, 65_536),
    "workers": (1, 1024),
    "seconds": (0.05, 86_400),
    "concurrency": (1, 4096),
    "retries": (0, 1000),
    "request_seconds": (1, 86_400),
    "proxy": (0.0001, 0.9999),
    "device_hours": (0, math.inf),
    "device_hour_price": (0, math.inf),
}


def check_bounds(args: EvalArgs) -> None:
    """Raises UserError for a value that its type cannot rule out."""
    for name, (low, high) in _BOUNDS.items():
        value = getattr(args, name)
        if value is not None and not (low <= value <= high and math.isfinite(value)):
            upper = "and finite" if high == math.inf else f"and at most {high:,}"
            raise UserError(
                f"--{name.replace('_', '-')} is {value}; it must be at least {low:,} {upper}"
            )
    if not args.greedy and not args.candidates:
        raise UserError("--no-greedy leaves nothing to answer; ask for --candidates too")
    if args.suite and args.data:
        raise UserError("--suite and --data both name questions; give one of them")
    if not args.suite and not args.data:
        raise UserError(
            "no questions: give --suite NAME (see --list), or --data FILE --databases DIR"
        )
