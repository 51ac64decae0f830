"""Typed configuration of a training run, and how files, command line and defaults make one.

`configs/NAME.py` has a `get_config()` that returns a `TrainConfig`; the command line overrides any
field by its dotted name. Fields left at None are decided by `resolve` from the others (a
from-scratch model wants other settings than a pretrained one); `--dry-run` prints the outcome.
"""

import dataclasses
import difflib
import importlib.util
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import tyro

from jax_t2sql.errors import UserError


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Questions and databases."""

    train: Annotated[str | None, tyro.conf.arg(aliases=("--data",))] = None
    """Question file (JSONL or JSON array; our, BIRD's or Spider's field names), or a dataset:
    tfds:NAME, tfds:FOLDER/NAME:VERSION@SPLIT. None: the built-in world, made on the spot."""
    mix: tuple[str, ...] = ()
    """More datasets to train on, each with its share of the draws: tfds:mine=0.3."""
    databases: Annotated[str | None, tyro.conf.arg(aliases=("--databases",))] = None
    """Folder with <id>/<id>.sqlite or <id>.sqlite, or one SQLite file. A dataset knows its own."""
    eval: str | None = None
    """Held-out question file or dataset. None: the held-out split of a dataset that has one, else
    `eval_share` of `train`, chosen by hash."""
    eval_databases: str | None = None
    """Databases of `eval`; None: the same as `databases`."""
    eval_share: float = 0.15
    """Share of `train` held out where no `eval` file is given."""
    warmup: str | None = None
    """Question file of the supervised warm-up; None: `train` (or the built-in world's)."""
    empty_gold: Literal["exclude", "keep"] = "exclude"
    """Training questions whose gold result is empty or all NULL: any empty result would match."""


@dataclass(frozen=True, kw_only=True)
class PromptConfig:
    """How a question is put, and how long an answer may get."""

    style: Literal["tools", "direct", "question"] | None = None
    """tools: up to `max_turns` SQL calls, then a solution. direct: the schema, then one SQL block
    (or a message that is nothing but a query). question: the question alone (from-scratch models).
    None: question for the tiny model, else direct."""
    max_turns: int = 5
    """SQL calls an episode may make (tools)."""
    max_tokens: int | None = None
    """Tokens sampled a turn. None: 64 for question, 512 for tools, else 256."""
    max_context: int | None = None
    """Tokens of a whole episode. None: what the model allows, at most 4,096."""
    schema_tokens: int | None = None
    """Most tokens of a schema; beyond, the columns least like the question are left out. None: what
    the context leaves beside one turn, so give a number where large schemas crowd out turns."""
    evidence: Literal["plain", "structured"] = "plain"
    """structured: external knowledge in numbered pieces, and for each a requirement and a
    verification line in the model's messages."""
    tool_format: Literal["auto", "hermes", "qwen3_coder", "llama", "kimi", "deepseek"] = "auto"
    """How tool calls are written. auto: as the model's chat template does."""
    worked_example: bool = True
    """Show one solved question (tools)."""
    reasoning_effort: Literal["low", "medium", "high"] | None = None
    """Say in the prompt how much to think. None: nothing is said."""


@dataclass(frozen=True, kw_only=True)
class AdapterConfig:
    """What is trained."""

    kind: Literal["lora", "full"] | None = None
    """lora: low-rank adapters on linear layers. full: all weights. None: full for the tiny model,
    else lora."""
    rank: int = 32
    """Rank of the adapters."""
    alpha: float = 32.0
    """Adapters are scaled by alpha / rank."""
    targets: tuple[str, ...] = ("all-linear",)
    """"all-linear", or regular expressions over parameter paths."""


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """The policy-gradient loss."""

    name: Literal["cispo", "grpo", "policy_gradient"] = "cispo"
    """See `jax_t2sql.learner.losses`."""
    ratio_low: float = 0.0
    """Least importance weight π/π_sampler (a value of the ratio, not a distance from 1). Has no
    meaning for policy_gradient, which bounds weights from above only."""
    ratio_high: float = 4.0
    """Greatest importance weight."""


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW with linear warm-up, then cosine decay to `final_fraction` of the peak."""

    lr: float | None = None
    """Peak learning rate. None: 3e-4 (full), 5e-5 (lora)."""
    warmup_steps: int = 5
    """Steps of linear warm-up."""
    final_fraction: float = 0.1
    """Learning rate at the last step, as a share of the peak."""
    b1: float = 0.9
    """Decay of the first moment."""
    b2: float = 0.95
    """Decay of the second moment."""
    weight_decay: float = 0.0
    """Decoupled weight decay."""
    clip_norm: float = 1.0
    """Gradients are scaled down to this global norm."""


@dataclass(frozen=True, kw_only=True)
class RLConfig:
    """The reinforcement-learning phase."""

    steps: int | None = None
    """Updates. None: 500 for the tiny model, else 20."""
    groups: int | None = None
    """Questions a step. None: 48 for the tiny model, else 4."""
    group_size: int = 8
    """Rollouts a question."""
    max_staleness: int = 0
    """Groups sampled by weights older than this many updates are dropped."""


@dataclass(frozen=True, kw_only=True)
class WarmupConfig:
    """Supervised warm-up on gold SQL before RL (how a from-scratch model learns to write SQL)."""

    steps: int | None = None
    """Updates. None: 150 for the tiny model, else 0."""
    batch: int = 64
    """Pairs a step."""
    lr: float | None = None
    """Peak learning rate. None: 4e-3 (full), 1e-4 (lora)."""


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """Greedy accuracy on held-out questions."""

    every: int = 20
    """Updates between evaluations during RL; 0: only before and after."""
    questions: int | None = 200
    """Questions of the evaluations during RL; None: all."""
    final_questions: int | None = None
    """Questions of the evaluations before and after RL; None: all."""


@dataclass(frozen=True, kw_only=True)
class GradingConfig:
    """Limits of the SQL worker pool."""

    workers: int = 2
    """Processes that run SQL."""
    seconds: float = 10.0
    """Time limit of a query."""
    max_rows: int = 100_000
    """Rows of a result, beyond which it is too large."""
    max_bytes: int = 64 * 2**20
    """Bytes of a result, beyond which it is too large."""
    gold_folder: str | None = None
    """Keep the results of gold queries in this folder, for later runs too; None: in memory."""


@dataclass(frozen=True, kw_only=True)
class RewardConfig:
    """What a rollout earns beside 1 for a right result, 0 for a wrong one, -1 without an answer."""

    equivalence: Literal["off", "check", "perturbation"] = "off"
    """Whether a query whose result is right is also compared with the gold query elsewhere.
    check: small databases made for the pair, rows of the real one, then a proof. perturbation:
    perturbed copies of the real database (cheap). See docs/equivalence.md."""
    equivalence_penalty: float = 0.2
    """Taken from the reward of a right result whose query is refuted; 0 only measures."""
    equivalence_seconds: float = 1.5
    """Processor time of a check."""
    equivalence_bound: int = 2
    """Rows a table up to which equivalence is to be proved (check)."""
    equivalence_copies: int = 10
    """Perturbed copies of the database (perturbation)."""
    strictness: Literal["any", "realistic"] = "any"
    """Which databases refute (check). any: all that the schema allows. realistic: only those whose
    values look like the real ones."""
    evidence_penalty: float = 0.1
    """Taken from the reward for each of two rules missed with --prompt.evidence structured: all
    pieces required by the second turn, all verified in the turn that answers."""
    floor: float | None = -1.0
    """No reward is below it; None lifts it."""


@dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """Shapes of an update."""

    row_length: int | None = None
    """Tokens of a packed row. None: a bucket over the longest sequence of the batch."""
    rows: int | None = None
    """Rows of a micro-batch. None: about 1,024 tokens' worth."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the frozen base; what trains is always float32."""
    bits: Literal[4, 8] | None = None
    """Store the kernels of the frozen base in so many bits instead."""
    bits_group: int = 128
    """With bits: numbers that share a scale. It must divide every input width."""
    bits_targets: str = ""
    """With bits: regular expression found in the paths of the modules to store so, such as
    expert_; all modules of all layers by default."""


@dataclass(frozen=True, kw_only=True)
class SamplerConfig:
    """The in-process sampler."""

    rows: int | None = None
    """Rollouts decoded side by side. None: 384 for the tiny model, else 32."""
    max_prompt_tokens: int = 16_384
    """Distinct prompt tokens run in one program; lower it if memory is short."""


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """Checkpoints of adapter, optimizer and data cursor."""

    every: int = 20
    """Updates between checkpoints."""
    keep: int = 2
    """Checkpoints kept."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One training run."""

    model: str = "tiny"
    """A Hugging Face directory, a .gguf file, a hub id, or "tiny": a small Qwen3-style model and
    tokenizer made on the spot."""
    seed: int = 0
    """Decides initial weights, question order and sampling."""
    data: DataConfig = field(default_factory=DataConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    adapter: AdapterConfig = field(default_factory=AdapterConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    rl: RLConfig = field(default_factory=RLConfig)
    warmup: WarmupConfig = field(default_factory=WarmupConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    grading: GradingConfig = field(default_factory=GradingConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)


def load_config(path: str | Path) -> TrainConfig:
    """Runs `get_config()` of a configuration file.

    Raises:
      UserError: no such file, no `get_config`, or it fails or returns something else.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"configuration {path} does not exist; see configs/ for those that do")
    spec = importlib.util.spec_from_file_location(f"config_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UserError(f"configuration {path} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        if not hasattr(module, "get_config"):
            raise UserError(
                f"configuration {path} has no get_config(); add one that returns a TrainConfig"
            )
        config = module.get_config()
    except UserError:
        raise
    except (TypeError, SyntaxError) as error:
        raise UserError(f"configuration {path}: {_with_suggestion(error)}") from error
    except (Exception, SystemExit) as error:  # whatever the user's own code raises
        raise UserError(f"configuration {path}: {type(error).__name__}: {error}") from error
    if not isinstance(config, TrainConfig):
        raise UserError(
            f"get_config() of {path} returned {type(config).__name__}; it must return a"
            " jax_t2sql.config.TrainConfig"
        )
    try:
        return msgspec.convert(to_dict(config), TrainConfig)
    except msgspec.ValidationError as error:
        raise UserError(f"configuration {path}: {error}") from error


def _with_suggestion(error: Exception) -> str:
    """The error's text; for an unknown field also the known field that is most like it."""
    match = re.search(r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'", str(error))
    section = globals().get(match[1]) if match else None
    if section is None:
        return str(error)
    names = [f.name for f in dataclasses.fields(section)]
    close = difflib.get_close_matches(match[2], names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"fields are {', '.join(names)}"
    return f"{match[1]} has no field {match[2]!r}; {hint}"


def resolve(config: TrainConfig) -> TrainConfig:
    """Decides every field that is None where a value is needed; checks bounds.

    Raises:
      UserError: a field is out of its bounds or two do not go together.
    """
    tiny = config.model == "tiny"
    if tiny != (config.data.train is None):
        raise UserError(
            "the tiny model learns the built-in world only: give both --model and --data for your"
            " own questions, or neither"
            if tiny
            else f"--model {config.model} needs --data (a question file) and --databases"
        )
    data = config.data
    if tiny and any((data.databases, data.eval, data.eval_databases, data.warmup, data.mix)):
        raise UserError(
            "the tiny model learns the built-in world only: --databases, --data.eval,"
            " --data.eval-databases, --data.warmup and --data.mix need --model and --data"
        )
    if not tiny and data.databases is None and not data.train.startswith("tfds:"):
        raise UserError(f"--data {data.train} needs --databases, a folder of SQLite files")

    style = config.prompt.style or ("question" if tiny else "direct")
    kind = config.adapter.kind or ("full" if tiny else "lora")
    fill = {
        "prompt": dict(
            style=style,
            max_tokens=64 if style == "question" else 512 if style == "tools" else 256,
        ),
        "adapter": dict(kind=kind),
        "optimizer": dict(lr=3e-4 if kind == "full" else 5e-5),
        "rl": dict(steps=500 if tiny else 20, groups=48 if tiny else 4),
        "warmup": dict(steps=150 if tiny else 0, lr=4e-3 if kind == "full" else 1e-4),
        "sampler": dict(rows=384 if tiny else 32),
    }
    sections = {}
    for name, values in fill.items():
        section = getattr(config, name)
        missing = {key: value for key, value in values.items() if getattr(section, key) is None}
        sections[name] = dataclasses.replace(section, **missing)
    config = dataclasses.replace(config, **sections)
    _check(config)
    return config


def _check(config: TrainConfig) -> None:
    """Bounds that a type cannot say."""
    bounds = [
        ("seed", config.seed, 0, 2**31 - 1),
        ("rl.steps", config.rl.steps, 0, None),
        ("rl.groups", config.rl.groups, 1, None),
        ("rl.group_size", config.rl.group_size, 2, 256),
        ("rl.max_staleness", config.rl.max_staleness, 0, None),
        ("warmup.steps", config.warmup.steps, 0, None),
        ("warmup.batch", config.warmup.batch, 1, None),
        ("warmup.lr", config.warmup.lr, 0, 1),
        ("optimizer.lr", config.optimizer.lr, 0, 1),
        ("optimizer.warmup_steps", config.optimizer.warmup_steps, 0, None),
        ("optimizer.final_fraction", config.optimizer.final_fraction, 0, 1),
        # At 1 a moment never moves, and Adam divides by zero.
        ("optimizer.b1", config.optimizer.b1, 0, 0.99999),
        ("optimizer.b2", config.optimizer.b2, 0, 0.99999),
        ("optimizer.weight_decay", config.optimizer.weight_decay, 0, None),
        ("optimizer.clip_norm", config.optimizer.clip_norm, 0, None),
        ("adapter.rank", config.adapter.rank, 1, None),
        ("adapter.alpha", config.adapter.alpha, 1e-6, None),
        ("prompt.max_tokens", config.prompt.max_tokens, 1, None),
        ("prompt.max_turns", config.prompt.max_turns, 1, None),
        ("loss.ratio_low", config.loss.ratio_low, 0, 1),
        ("loss.ratio_high", config.loss.ratio_high, 1, None),
        ("data.eval_share", config.data.eval_share, 0, 0.9),
        ("eval.every", config.eval.every, 0, None),
        ("eval.questions", config.eval.questions, 1, None),
        ("eval.final_questions", config.eval.final_questions, 1, None),
        ("grading.workers", config.grading.workers, 1, 256),
        ("grading.seconds", config.grading.seconds, 0.05, 86_400),
        ("grading.max_rows", config.grading.max_rows, 1, None),
        ("grading.max_bytes", config.grading.max_bytes, 1, None),
        ("reward.equivalence_penalty", config.reward.equivalence_penalty, 0, 1),
        ("reward.evidence_penalty", config.reward.evidence_penalty, 0, 1),
        ("reward.equivalence_seconds", config.reward.equivalence_seconds, 0.05, 3_600),
        ("reward.equivalence_bound", config.reward.equivalence_bound, 1, 10),
        ("reward.equivalence_copies", config.reward.equivalence_copies, 1, 1_000),
        ("reward.floor", config.reward.floor, -100, 0),
        ("prompt.max_context", config.prompt.max_context, 2, None),
        ("prompt.schema_tokens", config.prompt.schema_tokens, 1, None),
        ("learner.row_length", config.learner.row_length, 2, None),
        ("learner.rows", config.learner.rows, 1, None),
        ("sampler.rows", config.sampler.rows, 1, None),
        ("sampler.max_prompt_tokens", config.sampler.max_prompt_tokens, 1, None),
        ("checkpoint.every", config.checkpoint.every, 1, None),
        ("checkpoint.keep", config.checkpoint.keep, 1, None),
    ]
    for name, value, low, high in bounds:
        if value is None:  # left open: decided when the run is put together
            continue
        if not (low <= value < math.inf and (high is None or value <= high)):  # no NaN either
            limit = f"at least {low}, and finite" if high is None else f"from {low} to {high}"
            raise UserError(f"--{name.replace('_', '-')} is {value}; it must be {limit}")
    if config.loss.name == "policy_gradient" and config.loss.ratio_low != 0:
        raise UserError(
            f"--loss.ratio-low is {config.loss.ratio_low}, but --loss.name policy_gradient bounds"
            " weights from above only; leave it at 0, or use cispo"
        )
    if config.loss.ratio_low == config.loss.ratio_high:
        raise UserError("--loss.ratio-low and --loss.ratio-high are both 1; leave room between")


def to_dict(config: TrainConfig) -> dict:
    """Plain, JSON-able form."""
    return dataclasses.asdict(config)
