"""Write hints for questions, at three strengths, and check that they give nothing away.

    python -m data_pipelines.hints --data Q --databases DIR --out hints.jsonl --policy outline
    python -m data_pipelines.hints … --policy openai:https://HOST/v1 --model NAME
    python -m data_pipelines.hints … --policy local:MODEL[+ADAPTER]

outline needs no model: it says in plain words what the gold query is made of. openai asks any
endpoint that speaks OpenAI's chat completions, with the key in OPENAI_API_KEY if it wants one.

A hint that writes SQL out, shares a run of tokens with the gold query or has a value of its result
is refused, and the writer is told why and asked again. Hints that are in --out already are kept, so
an interrupted command goes on where it was. Train with --hints.file hints.jsonl.
"""

import dataclasses
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from data_pipelines.hint_questions import questions_for_hints
from data_pipelines.hint_writers import (
    ChatWriter,
    HintRequest,
    HintWriter,
    LocalWriter,
    OutlineWriter,
)
from jax_t2sql.errors import UserError
from jax_t2sql.hint_leaks import find_leak
from jax_t2sql.hints import STRENGTHS, Strength, hint_name
from jax_t2sql.json_rows import json_rows
from jax_t2sql.programs import raise_disk_fault, run_program
from jax_t2sql.rundir import make_folder


@dataclass(frozen=True, kw_only=True)
class HintArgs:
    """Options of the program."""

    data: str
    """Question file or dataset: see --data of jax_t2sql.train."""
    out: Path
    """File for the hints, JSON lines; what it holds already is kept."""
    policy: str
    """outline, openai:URL or local:MODEL[+ADAPTER]."""
    databases: Path | None = None
    """Folder of databases, or one file. A dataset knows its own."""
    model: str | None = None
    """The endpoint's name of the model (openai); None: the only one that it serves."""
    api_key_variable: str = "OPENAI_API_KEY"
    """Environment variable that holds the endpoint's key (openai)."""
    strengths: tuple[Strength, ...] = STRENGTHS
    """Which to write."""
    ids: Path | None = None
    """JSON lines with a question_id: write hints for these questions only."""
    unsolved_in: str | None = None
    """Bus of a run (WORKDIR/bus): write hints only for questions that it asked and of which no
    rollout without a hint was ever right."""
    questions: int | None = None
    """Write hints for this many questions only, spread evenly over the file."""
    attempts: int = 3
    """How often a hint that gives something away is asked for."""
    batch: int = 32
    """Hints written at a time."""
    connections: int = 8
    """Requests at a time (openai)."""
    temperature: float = 0.7
    """Of sampling."""
    max_tokens: int = 1024
    """Tokens of a hint, reasoning included; one that is cut off is no hint."""
    seed: int = 0
    """Decides sampling."""
    workers: int = 2
    """Processes that run SQL."""
    seconds: float = 30.0
    """Time limit of a gold query."""


def main(argv: list[str] | None = None) -> int:
    """The program. Returns the exit status."""
    args = tyro.cli(
        HintArgs,
        args=sys.argv[1:] if argv is None else argv,
        prog="python -m data_pipelines.hints",
        description=__doc__,
    )
    try:
        write_hints(args)
    except OSError as error:
        raise_disk_fault(error, args.out, "it goes on where it was")
        raise
    return 0


def write_hints(args: HintArgs) -> Counter[tuple[Strength, str]]:
    """Writes what is missing in the file; returns how many hints came to what, by strength.

    Raises:
      UserError: bad options or input, or an endpoint that does not answer.
    """
    from jax_t2sql.datasets import open_data
    from jax_t2sql.grading import GradingPool, check_golds
    from jax_t2sql.sql import Limits, resolve_database

    _check(args)
    make_folder(args.out.absolute().parent, "--out")
    data = open_data(args.data, args.databases)
    there = _existing(args.out)
    with GradingPool(args.workers, limits=Limits(seconds=args.seconds)) as pool:
        problems = check_golds(
            questions_for_hints(
                data.problems, ids=args.ids, unsolved_in=args.unsolved_in, count=args.questions
            ),
            data.databases,
            pool,
        ).kept
        if not problems:
            raise UserError(f"no gold query of {args.data} runs on {data.databases}")
        paths = {p.db_id: resolve_database(data.databases, p.db_id) for p in problems}
        futures = [pool.execute(paths[p.db_id], p.gold_sql) for p in problems]
        rows = {p.question_id: f.result().rows for p, f in zip(problems, futures, strict=True)}
    schemas = {db_id: _schema(path, args.policy) for db_id, path in paths.items()}
    requests = [
        HintRequest(problem, strength, schemas[problem.db_id], seed=args.seed)
        for problem in problems
        for strength in args.strengths
        if (hint_name(problem), strength) not in there
    ]
    counts: Counter[tuple[Strength, str]] = Counter()
    writer = _writer(args) if requests else OutlineWriter()
    with open(args.out, "a", encoding="utf-8") as file:
        for first in range(0, len(requests), args.batch):
            part = requests[first : first + args.batch]
            for request, hint, reason in _write(writer, part, rows, args.attempts):
                counts[request.strength, "written" if hint else "refused"] += 1
                if hint:
                    file.write(json.dumps(_row(request, hint, args)) + "\n")
                elif counts[request.strength, "refused"] <= 3:
                    name = request.problem.question_id
                    print(f"no {request.strength} hint for {name}: {reason}", file=sys.stderr)
            file.flush()
    for strength in args.strengths:
        written, refused = counts[strength, "written"], counts[strength, "refused"]
        kept = sum(kind == strength for _, kind in there)
        print(f"{strength}: {written} written, {kept} were there, {refused} refused")
    print(f"in {args.out}; train with --hints.file {args.out}")
    return counts


def _write(
    writer: HintWriter, requests: Sequence[HintRequest], rows: dict, attempts: int
) -> Iterator[tuple[HintRequest, str, str]]:
    """Each request with its hint, or with "" and why there is none."""
    waiting = list(requests)
    for attempt in range(attempts):
        again = []
        for request, hint in zip(waiting, writer.write(waiting), strict=True):
            problem = request.problem
            reason = (
                find_leak(hint, problem, rows[problem.question_id])
                if hint
                else request.refused or "the writer has nothing to say"
            )
            if not reason:
                yield request, hint, ""
            elif attempt + 1 == attempts:
                yield request, "", reason
            else:
                seed = request.seed + 1
                again.append(dataclasses.replace(request, refused=reason, seed=seed))
        waiting = again


def _row(request: HintRequest, hint: str, args: HintArgs) -> dict:
    by = f"{args.policy} {args.model}" if args.model else args.policy
    problem = request.problem
    return {
        "question_id": hint_name(problem),
        "strength": request.strength,
        "hint": hint,
        "question": problem.question,
        "by": by,
    }


def _writer(args: HintArgs) -> HintWriter:
    kind, _, rest = args.policy.partition(":")
    if args.policy == "outline":
        return OutlineWriter()
    if kind == "openai":
        return ChatWriter(
            rest,
            model=args.model,
            key_variable=args.api_key_variable,
            connections=args.connections,
            temperature=args.temperature,
            max_tokens=args.max_tokens,
        )
    return LocalWriter(
        args.policy, rows=args.batch, temperature=args.temperature, max_tokens=args.max_tokens
    )


def _schema(path: Path, policy: str) -> str:
    from jax_t2sql.text2sql.schema_text import schema_text

    return "" if policy == "outline" else schema_text(path)


def _existing(path: Path) -> set[tuple[str, str]]:
    """(question id, strength) of the hints in the file; a line torn by a crash is cut off."""
    if not path.exists():
        return set()
    if not path.is_file():
        raise UserError(f"--out {path} is no file; name one for the hints")
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        with open(path, "r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)
    with open(path, "rb") as file:
        rows = [row for _, row in json_rows(file, path)]
    if not all(isinstance(row, dict) and "hint" in row for row in rows):
        raise UserError(f"--out {path} holds something else than hints; name another file")
    return {(str(row.get("question_id")), str(row.get("strength"))) for row in rows}


def _check(args: HintArgs) -> None:
    kind, _, rest = args.policy.partition(":")
    if args.policy != "outline" and not (kind in ("openai", "local") and rest):
        raise UserError(
            f"--policy is {args.policy!r}; it must be outline, openai:URL or local:MODEL[+ADAPTER]"
        )
    bounds = {
        "questions": 1,
        "attempts": 1,
        "batch": 1,
        "connections": 1,
        "temperature": 0,
        "max_tokens": 1,
        "seed": 0,
        "workers": 1,
        "seconds": 0.05,
    }
    for name, low in bounds.items():
        value = getattr(args, name)
        if value is not None and not low <= value < math.inf:
            raise UserError(
                f"--{name.replace('_', '-')} is {value}; it must be at least {low}, and finite"
            )


if __name__ == "__main__":
    run_program(main, interrupted="interrupted; the same command goes on where it was")
