"""Puts a run together from its configuration: model, questions, prompts, SQL pool.

Every fault of the input that can be found before the first step is found here.
"""

import dataclasses
import functools
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from data_pipelines.mixture import merge, parse_mixture
from data_pipelines.splits import split_by_hash
from jax_t2sql.batching import BatchLimits, rollout_limits
from jax_t2sql.config import DataConfig, PromptConfig, RewardConfig, TrainConfig
from jax_t2sql.datasets import heldout_split, open_data
from jax_t2sql.errors import UserError
from jax_t2sql.grading import EquivalenceRule, GradingPool, RewardRule, check_golds
from jax_t2sql.meshes import open_mesh
from jax_t2sql.models import (
    LoadedModel,
    ModelConfig,
    Quantization,
    init_params,
    load_model,
    save_hf,
)
from jax_t2sql.models.tiny import tiny_config, train_tokenizer
from jax_t2sql.rollouts import PromptBuilder, check_prompts
from jax_t2sql.sql import Limits
from jax_t2sql.text2sql import Codec, EpisodeConfig, Problem, PromptOptions, load_problems
from jax_t2sql.text2sql.tool_formats import tool_format_of

# Of which 256 are the bytes, which leaves room for every word and most values of the world.
_TINY_VOCAB = 700


@dataclass(frozen=True)
class Questions:
    """The questions of a run after every unusable one was set aside.

    Attributes:
      train, heldout, warmup: usable questions.
      databases, heldout_databases: where their databases lie.
      unseen: ids of held-out questions whose template never occurs in training; None where
        questions have no templates.
      excluded: (question, reason) of those set aside.
      doubts: (question, reason) of those kept although part of the gold's answer is chance.
      shares: parts of the draws of sources that are mixed in.
    """

    train: list[Problem]
    heldout: list[Problem]
    warmup: list[Problem]
    databases: Path
    heldout_databases: Path
    unseen: frozenset[str] | None = None
    excluded: tuple[tuple[Problem, str], ...] = ()
    doubts: tuple[tuple[Problem, str], ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """All parts of a run. `model.params` are what training starts from."""

    config: TrainConfig
    workdir: Path
    model: LoadedModel
    questions: Questions
    prompts: PromptBuilder
    heldout_prompts: PromptBuilder
    pool: GradingPool

    @functools.cached_property
    def batch_limits(self) -> BatchLimits:
        """What no batch of rollouts exceeds."""
        return rollout_limits(
            [len(self.prompts.ids(problem)) for problem in self.questions.train],
            self.prompts.episode,
            self.config.rl,
            shards=self.model.layout.batch_shards,
        )


def load_base(config: TrainConfig, workdir: Path) -> tuple[LoadedModel, DataConfig]:
    """The model to train and where its questions lie; makes both for the tiny model."""
    if config.model != "tiny":
        return _load(config, config.model), config.data
    # The generator is only needed here, and only by the built-in world.
    from data_pipelines.world import build_world

    world = build_world(workdir / "world", seed=config.seed)
    data = dataclasses.replace(
        config.data,
        train=str(world.train),
        eval=str(world.heldout),
        warmup=str(world.warmup),
        databases=str(world.databases),
    )
    directory = workdir / "base"
    if not directory.is_dir():
        _make_tiny(world, directory, seed=config.seed)
    return _load(config, str(directory)), data


def _load(config: TrainConfig, source: str) -> LoadedModel:
    learner, quantization = config.learner, None
    if learner.bits is not None:
        quantization = Quantization(
            bits=learner.bits, group=learner.bits_group, targets=learner.bits_targets
        )
    try:
        return load_model(
            source,
            dtype=learner.dtype,
            quantization=quantization,
            mesh=open_mesh(config.mesh),
        )
    except ValueError as error:  # only of the mesh
        raise UserError(f"--mesh {config.mesh}: {error}") from error


def _make_tiny(world, directory: Path, *, seed: int) -> None:
    """Writes a small random model, and a tokenizer fitted to the texts of warm-up and training.

    The tokenizer sees training SQL as plain text, so that rare values get tokens too; the model is
    never trained on it.
    """
    import jax

    texts = []
    for problem in (*load_problems(world.warmup), *load_problems(world.train)):
        texts += [problem.question, answer_text(problem, "question")]
    tokenizer = train_tokenizer(texts, vocab_size=_TINY_VOCAB)
    config: ModelConfig = tiny_config(tokenizer.vocab_size, kv_heads=4)
    params = init_params(config, jax.random.key(seed), "float32")
    # Written beside and renamed: a half-written folder would be taken for the model.
    draft = directory.with_name(directory.name + ".tmp")
    shutil.rmtree(draft, ignore_errors=True)
    save_hf(
        LoadedModel(config=config, params=params, tokenizer=tokenizer, source="tiny", sha256=""),
        draft,
    )
    draft.rename(directory)


def answer_text(problem: Problem, style: str) -> str:
    """The gold answer as the model should write it, for supervised warm-up.

    In the tools style this is an answer without a look at the data, which is allowed.
    """
    sql = problem.gold_sql.strip().rstrip(";")
    if style == "tools":
        return f"<solution>\n{sql}\n</solution>"
    return sql if style == "question" else f"```sql\n{sql}\n```"


def episode_config(
    prompt: PromptConfig,
    model: LoadedModel,
    *,
    default_context: int = 4096,
    options: str = "--prompt.",
) -> EpisodeConfig:
    """Bounds of an episode; the context is what the model and the configuration allow.

    Args:
      prompt: resolved.
      default_context: at most this many tokens where the configuration names no number.
      options: what the program's option names start with, for messages.

    Raises:
      UserError: the configuration wants a longer context than the model has.
    """
    limit = model.config.max_position_embeddings
    context = prompt.max_context or min(limit, default_context)
    if context > limit:
        raise UserError(
            f"{options}max-context is {context}, but {model.source} has {limit} positions; lower it"
        )
    if prompt.max_tokens >= context:
        raise UserError(
            f"{options}max-tokens is {prompt.max_tokens}, which leaves no room for a prompt in a"
            f" context of {context} tokens; lower it"
        )
    named = prompt.tool_format
    taught = tool_format_of(model.tokenizer.chat_template).name
    return EpisodeConfig(
        style=prompt.style,
        max_turns=prompt.max_turns,
        max_tokens_per_turn=prompt.max_tokens,
        max_context=context,
        options=PromptOptions(
            evidence=prompt.evidence,
            tool_format=taught if named == "auto" else named,
            worked_example=prompt.worked_example,
            reasoning_effort=prompt.reasoning_effort,
        ),
    )


def make_pool(config: TrainConfig) -> GradingPool:
    """The SQL worker pool of a run."""
    limits = Limits(
        seconds=config.grading.seconds,
        max_rows=config.grading.max_rows,
        max_bytes=config.grading.max_bytes,
    )
    return GradingPool(
        workers=config.grading.workers, limits=limits, gold_folder=config.grading.gold_folder
    )


def reward_rule(reward: RewardConfig) -> RewardRule:
    """What earns how much."""
    return RewardRule(
        refuted=-reward.equivalence_penalty,
        evidence=-reward.evidence_penalty,
        floor=reward.floor,
    )


def equivalence_rule(reward: RewardConfig) -> EquivalenceRule | None:
    """How right answers are checked; None where they are not."""
    if reward.equivalence == "off":
        return None
    return EquivalenceRule(
        method=reward.equivalence,
        seconds=reward.equivalence_seconds,
        bound=reward.equivalence_bound,
        strictness=reward.strictness,
        copies=reward.equivalence_copies,
    )


def load_questions(
    data: DataConfig,
    *,
    pool: GradingPool,
    need_warmup: bool,
    say: Callable[[str], None] = lambda text: None,
) -> Questions:
    """Reads questions, runs every gold query once, and sets aside what cannot be learned from.

    Args:
      data: resolved.
      pool: runs the golds.
      need_warmup: whether there is a supervised warm-up.
      say: is told what is set aside.

    Raises:
      UserError: a file or database is missing or broken, or nothing usable is left.
    """
    opened = open_data(data.train, data.databases)
    train, databases = list(opened.problems), opened.databases
    published = heldout_split(data.train)
    if data.eval is not None:
        split = heldout_split(data.eval) or "val"
        held = open_data(data.eval, data.eval_databases or data.databases, split=split)
        heldout, heldout_databases = list(held.problems), held.databases
    elif published is not None and "@" not in Path(data.train).name:
        held = open_data(f"{data.train}@{published}", data.eval_databases or data.databases)
        heldout, heldout_databases = list(held.problems), held.databases
    else:
        train, heldout = split_by_hash(train, data.eval_share)
        heldout_databases = databases
    shares: dict[str, float] = {}
    if data.mix:
        parts = [(opened.name or "data", train, databases)]
        for ingredient in parse_mixture(data.mix):
            part = open_data(ingredient.spec, None)
            parts.append((part.name, part.problems, part.databases))
            shares[part.name] = ingredient.share
        train, databases = merge(parts)
    warmup = []
    if need_warmup:
        warmup = list(open_data(data.warmup, databases).problems) if data.warmup else train

    excluded: list[tuple[Problem, str]] = []
    doubts: list[tuple[Problem, str]] = []
    usable = {}
    for name, problems, folder in (
        ("train", train, databases),
        ("heldout", heldout, heldout_databases),
        ("warmup", warmup, databases),
    ):
        if name == "warmup" and not data.warmup:
            usable[name] = usable["train"] if need_warmup else []
            continue
        if not problems and name != "warmup":
            raise UserError(
                f"no question is left for {name}: --data.eval-share {data.eval_share:g} of"
                f" {len(train) + len(heldout)} questions are held out; give --data.eval, a"
                " held-out file, or another share"
            )
        report = check_golds(problems, folder, pool)
        kept = list(report.kept)
        aside = [(problem, f"{name}: {reason}") for problem, reason in report.quarantined]
        if data.empty_gold == "exclude" and name == "train":
            aside += [
                (problem, f"{name}: empty or all-NULL gold result") for problem in report.empty
            ]
        else:
            kept = _in_order(problems, kept + list(report.empty))
        if aside:
            say(f"{len(aside)} of {len(problems)} {name} questions set aside (see excluded.jsonl)")
        if not kept and problems:
            problem, reason = aside[0]
            raise UserError(
                f"no usable question among the {len(problems)} for {name}; the first,"
                f" {problem.question_id} ({problem.db_id}): {reason}. Correct the gold SQL or the"
                " databases, or give other questions"
            )
        excluded += aside
        doubts += [(problem, f"{name}: {reason}") for problem, reason in report.warnings]
        usable[name] = kept
    return Questions(
        train=usable["train"],
        heldout=usable["heldout"],
        warmup=usable["warmup"],
        databases=databases,
        heldout_databases=heldout_databases,
        unseen=_unseen_ids(data.eval),
        excluded=tuple(excluded),
        doubts=tuple(doubts),
        shares=shares,
    )


def _in_order(problems: Sequence[Problem], kept: Sequence[Problem]) -> list[Problem]:
    ids = {problem.question_id for problem in kept}
    return [problem for problem in problems if problem.question_id in ids]


def _unseen_ids(path: str | None) -> frozenset[str] | None:
    """Ids of questions marked `"seen_template": false`; None if the file has no such mark.

    Only JSON lines have it, as the question generator writes them, each with an id.
    """
    if path is None or Path(path).suffix != ".jsonl":
        return None
    try:
        with open(path, encoding="utf-8-sig") as file:
            rows = [json.loads(line) for line in file if line.strip()]
    except ValueError:  # one array over several lines: a proper question file all the same
        return None
    marked = [row for row in rows if isinstance(row, dict) and "seen_template" in row]
    if not marked:
        return None
    return frozenset(str(row.get("question_id")) for row in marked if row["seen_template"] is False)


def build_prompts(
    questions: Questions, codec: Codec, episode: EpisodeConfig, prompt: PromptConfig
) -> tuple[Questions, PromptBuilder, PromptBuilder]:
    """Prompts for training and for held-out questions, and the questions that they fit.

    Training questions whose prompt is too long are set aside; held-out ones stay, as unanswered.

    Raises:
      UserError: of the questions for training, warm-up or evaluation none fits.
    """
    prompts, heldout_prompts = (
        PromptBuilder(folder, codec, episode, schema_tokens=prompt.schema_tokens)
        for folder in (questions.databases, questions.heldout_databases)
    )
    train, train_long = check_prompts(questions.train, prompts)
    warmup, warmup_long = check_prompts(questions.warmup, prompts)
    _, heldout_long = check_prompts(questions.heldout, heldout_prompts)
    reasons = [(p, f"train: {r}") for p, r in train_long]
    if questions.warmup is not questions.train:  # else they are listed already
        reasons += [(p, f"warmup: {r}") for p, r in warmup_long]
    reasons += [(p, f"heldout: counted as wrong: {r}") for p, r in heldout_long]
    questions = dataclasses.replace(
        questions, train=train, warmup=warmup, excluded=(*questions.excluded, *reasons)
    )
    return questions, prompts, heldout_prompts


def write_reasons(path: Path, found: Sequence[tuple[Problem, str]]) -> None:
    """One JSON line for each question, with what was found about it."""
    with open(path, "w", encoding="utf-8") as file:
        for problem, reason in found:
            row = {
                "question_id": problem.question_id,
                "db_id": problem.db_id,
                "reason": reason,
                "question": problem.question,
                "SQL": problem.gold_sql,
            }
            file.write(json.dumps(row) + "\n")


def enable_compilation_cache() -> None:
    """Keeps compiled programs between runs, in the user's cache folder."""
    import jax

    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jax.config.update("jax_compilation_cache_dir", str(root / "jax_t2sql" / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
