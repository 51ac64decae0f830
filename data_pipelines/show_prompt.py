"""Print the prompt of one question, as a model gets it.

    python -m data_pipelines.show_prompt --data Q --databases DIR [--id 7] [--evidence structured]
    python -m data_pipelines.show_prompt --data tfds:D/mine@val
    python -m data_pipelines.show_prompt --data tfds:D/spider2_snow --ddl FILE --dialect snowflake

The text goes to standard output, without the tokens of the chat template; its length and what is
left out of the schema to standard error.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from data_pipelines.program import token_counter
from jax_t2sql.errors import UserError
from jax_t2sql.programs import run_program
from jax_t2sql.text2sql import Problem, PromptOptions, Style, build_messages
from jax_t2sql.text2sql.prompt_options import Dialect, Effort, Evidence
from jax_t2sql.text2sql.tool_formats import ToolFormatName


@dataclass(frozen=True, kw_only=True)
class ShowArgs:
    """Options of the program."""

    data: str
    """Question file or dataset: see --data of jax_t2sql.train."""
    databases: Path | None = None
    """Folder of databases, or one file. A dataset knows its own."""
    ddl: Path | None = None
    """File of CREATE TABLE statements that stands for the database."""
    id: str | None = None
    """question_id; the first question if not given."""
    style: Literal["tools", "direct", "question"] = "tools"
    """How the question is put."""
    max_turns: int = 5
    """SQL calls that the prompt promises (tools)."""
    evidence: Evidence = "plain"
    """How external knowledge is put, and what is asked about it."""
    dialect: Dialect = "sqlite"
    """Of the query asked for."""
    tool_format: ToolFormatName = "hermes"
    """How tool calls are written (tools)."""
    worked_example: bool = True
    """Show one solved question (tools)."""
    reasoning_effort: Effort | None = None
    """Say how much to think."""
    tokenizer: Path | None = None
    """Hugging Face directory or GGUF file whose tokenizer counts; characters without it."""
    schema_tokens: int | None = None
    """Most tokens (characters) of the schema."""


def main(argv: list[str] | None = None) -> int:
    """The program. Returns the exit status."""
    args = tyro.cli(
        ShowArgs,
        args=sys.argv[1:] if argv is None else argv,
        prog="python -m data_pipelines.show_prompt",
        description=__doc__,
    )
    if args.max_turns < 1 or (args.schema_tokens is not None and args.schema_tokens < 1):
        raise UserError("--max-turns and --schema-tokens must be at least 1")
    problems, databases = _open(args)
    problem = _choose(problems, args)
    count = len if args.tokenizer is None else token_counter(args.tokenizer)
    schema = _schema(problem, databases, args, count)
    options = PromptOptions(
        evidence=args.evidence,
        dialect=args.dialect,
        tool_format=args.tool_format,
        worked_example=args.worked_example,
        reasoning_effort=args.reasoning_effort,
    )
    style: Style = args.style
    messages = build_messages(
        problem, schema, style=style, max_turns=args.max_turns, options=options
    )
    for message in messages:
        print(f"=== {message['role']}\n{message['content']}\n")
    unit = "characters" if args.tokenizer is None else "tokens"
    total = sum(count(message["content"]) for message in messages)
    print(f"question {problem.question_id} ({problem.db_id}): {total:,} {unit}", file=sys.stderr)
    return 0


def _open(args: ShowArgs) -> tuple[Sequence[Problem], Path | None]:
    from jax_t2sql.datasets import heldout_split, is_dataset, open_data
    from jax_t2sql.text2sql import load_problems

    if args.ddl is None:
        data = open_data(args.data, args.databases, split=heldout_split(args.data) or "train")
        return data.problems, data.databases
    if not is_dataset(args.data):
        return load_problems(args.data), None
    # Its databases need not be here, nor run here.
    from data_pipelines.builder import read_dataset
    from data_pipelines.datasets import find_dataset

    folder, split = find_dataset(args.data)
    splits = read_dataset(folder)
    name = split or heldout_split(args.data) or next(iter(splits))
    if name not in splits:
        raise UserError(f"{args.data}: no split {name!r}; there are {', '.join(splits)}")
    return splits[name], None


def _choose(problems: Sequence[Problem], args: ShowArgs) -> Problem:
    if args.id is None:
        return problems[0]
    for problem in problems:
        if problem.question_id == args.id:
            return problem
    raise UserError(
        f"{args.data} has no question {args.id!r}; the first is {problems[0].question_id!r}"
    )


def _schema(
    problem: Problem, databases: Path | None, args: ShowArgs, count: Callable[[str], int]
) -> str | None:
    from jax_t2sql.sql import resolve_database
    from jax_t2sql.text2sql.ddl import read_ddl_file
    from jax_t2sql.text2sql.prompts import prompt_doc
    from jax_t2sql.text2sql.schema_budget import fit_schema
    from jax_t2sql.text2sql.schema_text import print_schema

    if args.style == "question":
        return None
    if args.ddl is not None:
        doc = read_ddl_file(args.ddl)
    else:
        doc = prompt_doc(resolve_database(databases, problem.db_id), style=args.style)
    if args.schema_tokens is None:
        return print_schema(doc, dialect=args.dialect)
    fitted = fit_schema(
        doc,
        budget=args.schema_tokens,
        count=count,
        about=f"{problem.question} {problem.evidence}",
        dialect=args.dialect,
    )
    print(f"schema: {fitted.columns} of {fitted.all} columns", file=sys.stderr)
    return fitted.text


if __name__ == "__main__":
    run_program(main, interrupted="interrupted")
