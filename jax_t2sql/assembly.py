"""Puts a run together from its configuration: model, questions, prompts, SQL pool.

Every fault of the input that can be found before the first step is found here.
"""

import dataclasses
import functools
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from jax_t2sql.batching import BatchLimits, rollout_limits
from jax_t2sql.config import DataConfig, PromptConfig, RewardConfig, TrainConfig
from jax_t2sql.errors import UserError
from jax_t2sql.grading import EquivalenceRule, GradingPool, RewardRule
from jax_t2sql.hints import HintBook
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
from jax_t2sql.prompt_builder import PromptBuilder, check_prompts
from jax_t2sql.question_set import Questions
from jax_t2sql.sql import Limits
from jax_t2sql.text2sql import Codec, EpisodeConfig, Problem, PromptOptions, load_problems
from jax_t2sql.text2sql.notes import read_notes
from jax_t2sql.text2sql.tool_formats import tool_format_of
from jax_t2sql.variants import Variants

# Of which 256 are the bytes, which leaves room for every word and most values of the world.
_TINY_VOCAB = 700


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
    hints: HintBook | None = None

    @functools.cached_property
    def variants(self) -> Variants:
        """How its tasks put their questions."""
        return Variants(self.questions.train, self.prompts, self.hints, self.config.robustness)

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
        lenient=reward.cut_off == "lenient",
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


def build_prompts(
    questions: Questions, codec: Codec, episode: EpisodeConfig, prompt: PromptConfig
) -> tuple[Questions, PromptBuilder, PromptBuilder]:
    """Prompts for training and for held-out questions, and the questions that they fit.

    Training questions whose prompt is too long are set aside; held-out ones stay, as unanswered.

    Raises:
      UserError: of the questions for training, warm-up or evaluation none fits; or there are no
        notes where the configuration says.
    """
    notes = read_notes(prompt.notes)
    prompts, heldout_prompts = (
        PromptBuilder(folder, codec, episode, schema_tokens=prompt.schema_tokens, notes=notes)
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


def enable_compilation_cache() -> None:
    """Keeps compiled programs between runs, in the user's cache folder."""
    import jax

    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jax.config.update("jax_compilation_cache_dir", str(root / "jax_t2sql" / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
