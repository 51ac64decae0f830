"""Prompts of an evaluation, and what identifies them."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Sequence

from jax_t2sql.config import PromptConfig
from jax_t2sql.eval.options import EvalArgs
from jax_t2sql.eval.questions import Asked, finder, problem_of
from jax_t2sql.eval.snow_schema import read_snow_doc
from jax_t2sql.eval.tasks import Task
from jax_t2sql.prompt_builder import PromptBuilder
from jax_t2sql.text2sql import Codec, EpisodeConfig, Problem
from jax_t2sql.text2sql.notes import read_notes


def prompt_config(args: EvalArgs) -> PromptConfig:
    """The options that say how questions are put, as episodes take them."""
    return PromptConfig(
        style=args.style,
        max_turns=args.max_turns,
        max_tokens=args.max_tokens,
        max_context=args.max_context,
        evidence=args.evidence,
        tool_format=args.tool_format,
        worked_example=args.worked_example,
        reasoning_effort=args.reasoning_effort,
    )


def make_prompts(
    asked: Asked, codec: Codec, episode: EpisodeConfig, args: EvalArgs
) -> PromptBuilder:
    """What makes the prompts, in the dialect of the databases."""
    read = None
    if asked.dialect == "snowflake":
        read = read_snow_doc
        options = dataclasses.replace(episode.options, dialect="snowflake")
        episode = dataclasses.replace(episode, options=options)
    return PromptBuilder(
        asked.databases,
        codec,
        episode,
        schema_tokens=args.schema_tokens,
        notes=read_notes(args.notes),
        find=finder(asked.dialect),
        read=read,
    )


def problems_of(tasks: Sequence[Task]) -> list[Problem]:
    """The question of each task as its prompt shows it."""
    return [problem_of(task.row, evidence=task.evidence) for task in tasks]


def digest(prompts: Iterable[object]) -> str:
    """SHA-256 of prompts: of their ids or messages, in order."""
    found = hashlib.sha256()
    for prompt in prompts:
        found.update(json.dumps(prompt).encode() + b"\n")
    return found.hexdigest()


def prompts_digest(builder: PromptBuilder, tasks: Sequence[Task]) -> str:
    """`digest` of the distinct prompts of the tasks."""
    return digest(builder.ids(problem) for problem in dict.fromkeys(problems_of(tasks)))
