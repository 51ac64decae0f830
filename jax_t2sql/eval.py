"""Score a model on questions: greedy execution accuracy with intervals.

    python -m jax_t2sql.eval --policy local:MODEL[+ADAPTER] --data questions.jsonl --databases DIR
        --out DIR

MODEL is a Hugging Face directory, a .gguf file or a hub id; ADAPTER a LoRA adapter in PEFT format.
Prints accuracy in all, by difficulty and by database, with 95 % Wilson intervals, and writes

    OUT/verdicts.jsonl   one line a question: prediction, verdict, detail
    OUT/score.json       the figures, with grader, data, prompt and decoding parameters
"""

import hashlib
import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from jax_t2sql import __version__
from jax_t2sql.errors import UserError
from jax_t2sql.programs import raise_disk_fault, run_program
from jax_t2sql.rundir import make_folder


@dataclass(frozen=True, kw_only=True)
class EvalArgs:
    """Options of the program."""

    policy: str
    """local:MODEL or local:MODEL+ADAPTER."""
    data: str
    """Question file (JSONL or JSON array; our, BIRD's or Spider's field names), or a dataset:
    tfds:NAME, tfds:FOLDER/NAME:VERSION@SPLIT; its held-out split if none is named."""
    databases: Path | None = None
    """Folder with <id>/<id>.sqlite or <id>.sqlite, or one SQLite file. A dataset knows its own."""
    out: Path = Path("runs/eval")
    """Folder for verdicts.jsonl and score.json; an earlier score there is replaced."""
    questions: int | None = None
    """Score only this many, spread evenly over the file."""
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
    temperature: float = 0.0
    """0 is greedy."""
    seed: int = 0
    """Decides sampling where temperature is above 0."""
    grading: str | None = None
    """Compare in this mode (set, multiset, list, bird, …) instead of each question's own."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the model."""
    rows: int = 32
    """Questions decoded side by side."""
    workers: int = 2
    """Processes that run SQL."""
    seconds: float = 30.0
    """Time limit of a query."""
    gold_folder: Path | None = None
    """Keep the results of gold queries in this folder, for later runs too."""


def main(argv: list[str] | None = None) -> int:
    """The program. Returns the exit status."""
    args = tyro.cli(
        EvalArgs,
        args=sys.argv[1:] if argv is None else argv,
        prog="python -m jax_t2sql.eval",
        description=__doc__,
    )
    try:
        evaluate_file(args)
    except OSError as error:
        raise_disk_fault(error, args.out, "it starts anew")
        raise
    return 0


def split_policy(policy: str) -> tuple[str, str | None]:
    """(model, adapter or None) of a --policy value.

    A + in the model's own path is no separator where that path exists.

    Raises:
      UserError: it does not start with "local:" or names nothing.

    >>> split_policy("local:models/base+runs/x/adapter")
    ('models/base', 'runs/x/adapter')
    """
    kind, _, rest = policy.partition(":")
    if kind != "local" or not rest:
        raise UserError(
            f"--policy is {policy!r}; it must be local:MODEL or local:MODEL+ADAPTER, MODEL being a"
            " Hugging Face directory, a .gguf file or a hub id"
        )
    if "+" not in rest or Path(rest).exists():
        return rest, None
    model, _, adapter = rest.rpartition("+")
    if not model or not adapter:
        raise UserError(f"--policy is {policy!r}; give a model before and an adapter after the +")
    return model, adapter


def evaluate_file(args: EvalArgs) -> dict:
    """Scores as asked; returns what score.json holds.

    Raises:
      UserError: bad input.
    """
    from jax_t2sql.assembly import enable_compilation_cache, episode_config
    from jax_t2sql.config import PromptConfig
    from jax_t2sql.datasets import heldout_split, open_data
    from jax_t2sql.evaluation import Answer, evaluate, score, score_by
    from jax_t2sql.grading import GradingPool, check_golds
    from jax_t2sql.models import check_model, load_adapter, load_model
    from jax_t2sql.preflight import check_all, check_folder, check_questions
    from jax_t2sql.progress import Progress
    from jax_t2sql.prompt_builder import PromptBuilder
    from jax_t2sql.sampling.chat import ChatCodec
    from jax_t2sql.sampling.engine import Engine
    from jax_t2sql.sql import Limits

    _check(args)
    split = heldout_split(args.data) or "train"
    model_name, adapter_name = split_policy(args.policy)
    check_all(
        [
            lambda: check_model(model_name),
            *([lambda: check_folder(args.databases)] if args.databases else []),
            lambda: check_questions(args.data, args.databases, split=split),
            lambda: _make_folder(args.out, Path(args.data)),
        ]
    )
    data = open_data(args.data, args.databases, split=split)
    problems = _chosen(list(data.problems), args)
    enable_compilation_cache()
    started = time.monotonic()
    limits = Limits(seconds=args.seconds)
    with GradingPool(args.workers, limits=limits, gold_folder=args.gold_folder) as pool:
        report = check_golds(problems, data.databases, pool)
        usable = {id(p) for p in (*report.kept, *report.empty)}
        problems = [problem for problem in problems if id(problem) in usable]
        for problem, reason in report.quarantined[:5]:
            print(f"left out: {problem.question_id} ({problem.db_id}): {reason}", file=sys.stderr)
        if len(report.quarantined) > 5:
            print(f"… and {len(report.quarantined) - 5} more left out", file=sys.stderr)
        if not problems:
            raise UserError(f"no gold query of {args.data} runs on {data.databases}")

        model = load_model(model_name, dtype=args.dtype)
        adapter = load_adapter(Path(adapter_name), model.config) if adapter_name else None
        codec = ChatCodec(model.tokenizer)
        prompt = PromptConfig(
            style=args.style,
            max_turns=args.max_turns,
            max_tokens=args.max_tokens,
            max_context=args.max_context,
            evidence=args.evidence,
            tool_format=args.tool_format,
            worked_example=args.worked_example,
            reasoning_effort=args.reasoning_effort,
        )
        episode = episode_config(prompt, model, default_context=8192, options="--")
        prompts = PromptBuilder(data.databases, codec, episode, schema_tokens=args.schema_tokens)
        engine = Engine(
            model.config,
            model.params,
            adapter,
            stop_ids=codec.stop_ids,
            decode=codec.decode,
            max_rows=args.rows,
        )
        (args.out / "score.json").unlink(missing_ok=True)  # it would not fit the new verdicts
        answers: list[Answer] = []
        with (
            open(args.out / "verdicts.jsonl", "w") as file,
            Progress(len(problems)) as progress,
        ):
            progress.phase("evaluation", len(problems))
            for part in evaluate(
                problems,
                policy=engine,
                prompts=prompts,
                pool=pool,
                temperature=args.temperature,
                seed=args.seed,
                batch=args.rows,
            ):
                answers += part
                file.writelines(json.dumps(answer.record) + "\n" for answer in part)
                file.flush()
                progress.step(len(answers), {"eval_accuracy": score(answers).accuracy})

    total = score(answers)
    outcomes = [answer.outcome for answer in answers]
    executed = sum(outcome in ("equal", "different", "gold_empty") for outcome in outcomes)
    result = {
        "accuracy": total.accuracy,
        "interval": total.interval,
        "correct": total.correct,
        "n": total.n,
        "executed": executed / total.n,
        "quarantined": len(report.quarantined),
        "empty_gold": len(report.empty),
        "prompt_too_long": outcomes.count("prompt_too_long"),
        "schema_cut": len(prompts.cut_schemas),
        "verdicts": {name: outcomes.count(name) for name in sorted(set(outcomes))},
        "by_difficulty": _as_dict(score_by(answers, lambda p: p.difficulty)),
        "by_database": _as_dict(score_by(answers, lambda p: p.db_id)),
        "policy": args.policy,
        "model_sha256": model.sha256,
        "grader": f"jax_t2sql {__version__}, {args.grading or 'mode of each question'},"
        f" {args.seconds:g} s",
        "data_sha256": data.sha256,
        "prompt_sha256": hashlib.sha256(
            json.dumps([prompts.ids(problem) for problem in problems]).encode()
        ).hexdigest(),
        "decoding": {
            "style": args.style,
            "max_turns": args.max_turns,
            "evidence": args.evidence,
            "tool_format": episode.options.tool_format,
            "worked_example": args.worked_example,
            "reasoning_effort": args.reasoning_effort,
            "temperature": args.temperature,
            "max_tokens": args.max_tokens,
            "max_context": episode.max_context,
            "seed": args.seed,
            "dtype": args.dtype,
        },
        "minutes": round((time.monotonic() - started) / 60, 2),
    }
    (args.out / "score.json").write_text(json.dumps(result, indent=2) + "\n")
    _print_table(result, args.out)
    return result


def _make_folder(path: Path, data: Path) -> None:
    """Makes --out, unless writing into it would replace the question file."""
    make_folder(path, "--out")
    for name in ("verdicts.jsonl", "score.json"):
        if data.exists() and (path / name).exists() and (path / name).samefile(data):
            raise UserError(f"--out {path} holds the questions, as {name}; name another folder")


def _check(args: EvalArgs) -> None:
    """Bounds that a type cannot say."""
    bounds = {
        "questions": 1,
        "max_turns": 1,
        "max_tokens": 1,
        "max_context": 2,
        "schema_tokens": 1,
        "temperature": 0,
        "rows": 1,
        "workers": 1,
        "seconds": 0.05,
    }
    for name, low in bounds.items():
        value = getattr(args, name)
        if value is not None and not low <= value < math.inf:
            raise UserError(
                f"--{name.replace('_', '-')} is {value}; it must be at least {low}, and finite"
            )


def _chosen(problems: list, args: EvalArgs) -> list:
    """The questions asked for, in the grading mode asked for."""
    from dataclasses import replace

    from jax_t2sql.sql import parse_mode
    from jax_t2sql.tracking import spread

    if args.questions is not None:
        problems = [problems[i] for i in spread(len(problems), args.questions)]
    if args.grading is not None:
        parse_mode(args.grading)
        problems = [replace(problem, grading=args.grading) for problem in problems]
    return problems


def _as_dict(scores: dict) -> dict:
    return {
        name: {"accuracy": s.accuracy, "correct": s.correct, "n": s.n, "interval": s.interval}
        for name, s in scores.items()
    }


def _print_table(result: dict, out: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{result['policy']}, {result['n']} questions")
    for heading in ("", "accuracy", "95 % interval", "n"):
        table.add_column(heading, justify="left" if not heading else "right")

    def row(name: str, part: dict) -> None:
        low, high = part["interval"]
        table.add_row(name, f"{part['accuracy']:.1%}", f"{low:.1%} – {high:.1%}", str(part["n"]))

    row("all", result)
    table.add_section()
    for name, part in result["by_difficulty"].items():
        row(name if name != "None" else "no difficulty given", part)
    table.add_section()
    for name, part in result["by_database"].items():
        row(name, part)
    console = Console(markup=False)  # names come from the user's files
    console.print(table)
    console.print(f"{result['executed']:.0%} of answers parse and execute")
    for name in ("quarantined", "empty_gold", "prompt_too_long", "schema_cut"):
        if result[name]:
            console.print(f"{name.replace('_', ' ')}: {result[name]}")
    console.print(f"verdicts in {out / 'verdicts.jsonl'}, figures in {out / 'score.json'}")


if __name__ == "__main__":
    run_program(main, interrupted="interrupted; verdicts.jsonl holds the questions done so far")
