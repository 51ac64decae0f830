"""Typed configuration of a training run.

Fields left at None are decided by `jax_t2sql.config_loading.resolve` from the others (a
from-scratch model wants other settings than a pretrained one); `--dry-run` prints the outcome.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Questions and databases."""

    train: Annotated[str | None, tyro.conf.arg(aliases=("--data",))] = None
    """Question file (JSONL, JSON array or .parquet; our, BIRD's or Spider's field names), or a
    dataset: tfds:NAME, tfds:FOLDER/NAME:VERSION@SPLIT. None: the built-in world, made on the
    spot."""
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
    notes: str | None = None
    """Said of a database after its schema: a text file, or a folder with DB_ID.txt, such as
    data_pipelines.onedb writes of its legend."""
    evidence: Literal["plain", "structured"] = "plain"
    """structured: external knowledge in numbered pieces, and for each a requirement and a
    verification line in the model's messages."""
    tool_format: Literal[
        "auto", "hermes", "qwen3_coder", "glm", "llama", "kimi", "deepseek", "plain"
    ] = "auto"
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
    hint_share: float = 0.0
    """Share of the pairs, among those that have a hint, whose prompt shows it."""


@dataclass(frozen=True, kw_only=True)
class HintsConfig:
    """Help with questions that no rollout of a group got right: they are put again, with a hint.
    Never in evaluation."""

    file: str | None = None
    """Hints as JSON lines, as data_pipelines.hints writes them. None: no hints."""
    strength: Literal["light", "medium", "strong"] = "medium"
    """How much the hints say that are used."""


@dataclass(frozen=True, kw_only=True)
class LearnabilityConfig:
    """Draws questions by how much their rollouts are expected to differ, instead of in epochs."""

    enabled: bool = False
    """Off: each question once an epoch."""
    floor: float = 0.1
    """Least weight of a draw; 1 is that of a question of which half the rollouts are right."""
    memory: float = 0.7
    """Share of a question's earlier outcomes that still counts when it is drawn again."""


@dataclass(frozen=True, kw_only=True)
class RobustnessConfig:
    """Training prompts whose evidence is not the question's own. Never in evaluation."""

    evidence_withheld: float = 0.0
    """Share of the prompts of questions with evidence that are put without it."""
    evidence_wrong: float = 0.0
    """Share of them that are put with wrong evidence."""


@dataclass(frozen=True, kw_only=True)
class AlarmsConfig:
    """Watches for runs that go wrong, and says what was seen and what to do."""

    action: Literal["off", "warn", "stop"] = "warn"
    """stop: the run keeps what it learned and goes on to its last evaluation."""
    window: int = 10
    """Steps that are compared with the best as many before."""
    length_factor: float = 2.0
    """Alarm when sampled tokens a rollout grew by this factor and accuracy did not."""
    unfinished_share: float = 0.5
    """Alarm when more rollouts than this end without an answer, and it was once fewer."""


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """Greedy accuracy on held-out questions."""

    every: int = 20
    """Updates between evaluations during RL; 0: only before and after."""
    questions: int | None = 200
    """Questions of the evaluations during RL; None: all."""
    final_questions: int | None = None
    """Questions of the evaluations before and after RL; None: all."""
    patience: int | None = None
    """Evaluations in a row without a better one, after which RL stops. None: it does not."""
    min_gain: float = 0.0
    """Accuracy above the best so far by more than this is better."""


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
    cut_off: Literal["strict", "lenient"] = "strict"
    """A turn cut off by its token limit. strict: no answer, whatever it holds. lenient: read as if
    it had ended there, as some public code does; for comparison only. Evaluation is strict."""


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
    """How rollouts are sampled; rows and prompt tokens are of the in-process sampler."""

    rows: int | None = None
    """Rollouts decoded side by side. None: 384 for the tiny model, else 32."""
    max_prompt_tokens: int = 16_384
    """Distinct prompt tokens run in one program; lower it if memory is short."""
    record_experts: bool = False
    """Mixtures of experts: record the experts that every sampled token went through, and train
    through the same ones. vLLM servers need --enable-return-routed-experts."""
    ratio_tolerance: float | None = None
    """How far from 1 the mean probability ratio of learner to sampler may be over the tokens that a
    sampler sampled with the learner's own version, and from 0 its mean logarithm; beyond it the
    sampler is quarantined. None: 0.001 in float32 on CPUs, 0.01 on others, 0.05 in bfloat16 or with
    a base in few bits."""
    ratio_tokens: int = 256
    """Such tokens of a sampler in one update, below which nothing is said of it."""
    quarantine: int = 1
    """Samplers that a run may quarantine; when another deviates, it stops and says why. So it does
    at once when no other sampler is at work."""


@dataclass(frozen=True, kw_only=True)
class FleetConfig:
    """Samplers that are processes of their own, `python -m jax_t2sql.sample`, on any machine."""

    workers: int = 0
    """How many are going to be started. 0: none, the learner samples by itself."""
    groups_in_flight: int = 16
    """Groups that each has under way at once."""
    length_gate: float = 0.0
    """Least ratio of the mean length of what is trained to that of all that arrives (mean of the
    last 20 steps); below it the learner waits for the slower groups. 0: it never waits."""
    publish_every: int = 1
    """Updates between publications of the adapter's files."""
    still_seconds: float | None = None
    """A sampler that gives no sign of life for so long is dead: others get its tasks. None: 60, or
    0.8 for each of the workers if that is more, up to 400: large fleets beat less often."""


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
    mesh: str | None = None
    """Devices that share the work, as sizes of the axes data, fsdp, tensor and expert; together
    they are all there are: fsdp=4,tensor=2 for eight. None: the first device alone, or fsdp over
    all devices of several hosts. A resumed run may have another."""
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
    fleet: FleetConfig = field(default_factory=FleetConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    hints: HintsConfig = field(default_factory=HintsConfig)
    learnability: LearnabilityConfig = field(default_factory=LearnabilityConfig)
    robustness: RobustnessConfig = field(default_factory=RobustnessConfig)
    alarms: AlarmsConfig = field(default_factory=AlarmsConfig)
