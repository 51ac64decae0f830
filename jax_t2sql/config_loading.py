"""How a configuration file, the command line and defaults make one configuration.

`configs/NAME.py` has a `get_config()` that returns a `TrainConfig`; the command line overrides any
field by its dotted name; `resolve` decides what is left at None.
"""

import dataclasses
import difflib
import importlib.util
import math
import re
from pathlib import Path

import msgspec

from jax_t2sql import config as sections
from jax_t2sql.config import TrainConfig
from jax_t2sql.errors import UserError
from jax_t2sql.meshes import parse_mesh


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
    section = getattr(sections, match[1], None) if match else None
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
        # Five times the pause between heartbeats of such a fleet; see `bus.contract.beat_pause`.
        "fleet": dict(still_seconds=min(max(60.0, 0.8 * config.fleet.workers), 400.0)),
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
        ("sampler.ratio_tolerance", config.sampler.ratio_tolerance, 1e-6, None),
        ("sampler.ratio_tokens", config.sampler.ratio_tokens, 1, None),
        ("sampler.quarantine", config.sampler.quarantine, 0, 100_000),
        ("fleet.workers", config.fleet.workers, 0, 100_000),
        ("fleet.groups_in_flight", config.fleet.groups_in_flight, 1, None),
        ("fleet.length_gate", config.fleet.length_gate, 0, 1),
        ("fleet.publish_every", config.fleet.publish_every, 1, config.rl.max_staleness + 1),
        ("fleet.still_seconds", config.fleet.still_seconds, 10, 86_400),
        ("checkpoint.every", config.checkpoint.every, 1, None),
        ("checkpoint.keep", config.checkpoint.keep, 1, None),
        ("warmup.hint_share", config.warmup.hint_share, 0, 1),
        # At 0 a question that was solved once would never be drawn again.
        ("learnability.floor", config.learnability.floor, 1e-3, 1),
        ("learnability.memory", config.learnability.memory, 0, 1),
        ("robustness.evidence_withheld", config.robustness.evidence_withheld, 0, 1),
        ("robustness.evidence_wrong", config.robustness.evidence_wrong, 0, 1),
        ("eval.patience", config.eval.patience, 1, None),
        ("eval.min_gain", config.eval.min_gain, 0, 1),
        ("alarms.window", config.alarms.window, 2, None),
        ("alarms.length_factor", config.alarms.length_factor, 1.1, None),
        ("alarms.unfinished_share", config.alarms.unfinished_share, 0.05, 1),
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
    if config.mesh is not None:
        parse_mesh(config.mesh)
    changed = config.robustness.evidence_withheld + config.robustness.evidence_wrong
    if changed > 1:
        raise UserError(
            f"--robustness.evidence-withheld and --robustness.evidence-wrong are {changed:g}"
            " together; they are shares of the same prompts: make their sum at most 1"
        )
    if config.warmup.hint_share > 0 and config.hints.file is None:
        raise UserError(
            f"--warmup.hint-share is {config.warmup.hint_share:g}, but there are no hints; give"
            " --hints.file, made by data_pipelines.hints"
        )
    if config.eval.patience is not None and config.eval.every == 0:
        raise UserError(
            f"--eval.patience is {config.eval.patience}, but --eval.every is 0: RL is never"
            " evaluated on its way; give the updates between evaluations"
        )
    if config.fleet.workers and config.adapter.kind == "full":
        raise UserError(
            f"--fleet.workers is {config.fleet.workers}, but --adapter.kind full trains all weights"
            " and samplers can only be given adapters; use --adapter.kind lora"
        )
    if config.loss.ratio_low == config.loss.ratio_high:
        raise UserError("--loss.ratio-low and --loss.ratio-high are both 1; leave room between")


def to_dict(config: TrainConfig) -> dict:
    """Plain, JSON-able form."""
    return dataclasses.asdict(config)
