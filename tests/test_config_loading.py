"""Configuration files, overrides and their bounds."""

import json

import pytest

from jax_t2sql import train
from jax_t2sql.assembly import equivalence_rule, reward_rule
from jax_t2sql.config import AdapterConfig, GradingConfig, LossConfig, OptimizerConfig, TrainConfig
from jax_t2sql.config_loading import load_config, resolve, to_dict
from jax_t2sql.errors import UserError


def write(tmp_path, body):
    path = tmp_path / "recipe.py"
    path.write_text(f"from jax_t2sql.config import *\ndef get_config():\n    return {body}\n")
    return path


def test_file_then_command_line(tmp_path):
    path = write(tmp_path, "TrainConfig(seed=3, rl=RLConfig(steps=7, groups=2))")
    args = train.parse(["--config", str(path), "--rl.groups", "5", "--data", "q.jsonl"])
    assert (args.run.seed, args.run.rl.steps, args.run.rl.groups) == (3, 7, 5)
    assert args.run.data.train == "q.jsonl"


def test_dry_run_prints_the_resolved_configuration(capsys):
    assert train.main(["--config", "configs/quickstart.py", "--dry-run", "--seed", "2"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["seed"] == 2 and shown["prompt"]["style"] == "question"
    assert shown["loss"] == {"name": "cispo", "ratio_low": 0.0, "ratio_high": 4.0}
    needed = [shown[s][k] for s, k in (("rl", "steps"), ("optimizer", "lr"), ("adapter", "kind"))]
    assert None not in needed


def test_an_unknown_field_gets_a_suggestion(tmp_path, capsys):
    path = write(tmp_path, "TrainConfig(rl=RLConfig(grops=2))")
    with pytest.raises(UserError, match="RLConfig has no field 'grops'; did you mean 'groups'"):
        load_config(path)
    with pytest.raises(SystemExit) as stop:
        train.parse(["--config", "configs/quickstart.py", "--rl.grops", "5"])
    assert stop.value.code == 2
    assert "--rl.groups" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("None", "returned NoneType"),
        ("1 +", "invalid syntax"),
        ("TrainConfig(3)", "positional"),
        ("Missing()", "NameError: name 'Missing'"),
    ],
)
def test_broken_files(tmp_path, body, says):
    with pytest.raises(UserError, match=says):
        load_config(write(tmp_path, body))


def test_missing_files(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        load_config(tmp_path / "none.py")
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(UserError, match=r"no get_config\(\)"):
        load_config(tmp_path / "empty.py")


def test_a_model_needs_questions_and_the_tiny_one_brings_its_own():
    with pytest.raises(UserError, match="needs --data"):
        resolve(TrainConfig(model="some/dir"))
    with pytest.raises(UserError, match="give both --model and --data"):
        resolve(train.parse(["--config", "configs/quickstart.py", "--data", "q.jsonl"]).run)


def test_bounds_name_option_and_limit():
    with pytest.raises(UserError, match=r"--loss.ratio-high is 0.5; it must be at least 1"):
        resolve(TrainConfig(loss=LossConfig(ratio_high=0.5)))


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--eval.final-questions 0", "must be at least 1"),
        ("--sampler.rows 0", "must be at least 1"),
        ("--optimizer.lr nan", "must be from 0 to 1"),
        ("--seed -1", "must be from 0"),
        ("--loss.ratio-low 1 --loss.ratio-high 1", "leave room between"),
        ("--databases folder", "learns the built-in world only"),
        ("--data.eval heldout.jsonl", "learns the built-in world only"),
        ("--reward.equivalence-penalty 1.5", "must be from 0 to 1"),
        ("--reward.equivalence-seconds 0", "must be from 0.05"),
        ("--reward.floor 1", "must be from -100 to 0"),
        ("--fleet.workers 2", "samplers can only be given adapters; use --adapter.kind lora"),
        ("--fleet.publish-every 2", "must be from 1 to 1"),
        ("--fleet.length-gate 1.5", "must be from 0 to 1"),
        ("--warmup.hint-share 0.5", "give --hints.file"),
        ("--learnability.floor 0", "must be from 0.001 to 1"),
        ("--learnability.memory 2", "must be from 0 to 1"),
        ("--robustness.evidence-withheld 0.6 --robustness.evidence-wrong 0.6", "at most 1"),
        ("--eval.patience 0", "must be at least 1"),
        ("--eval.patience 3 --eval.every 0", "--eval.every is 0"),
        ("--alarms.window 1", "must be at least 2"),
        ("--alarms.length-factor 1", "must be at least 1.1"),
    ],
)
def test_values_that_cannot_work_are_refused_at_once(option, says):
    args = train.parse(["--config", "configs/quickstart.py", *option.split()])
    with pytest.raises(UserError, match=says):
        resolve(args.run)


def test_what_is_checked_and_what_it_costs():
    off = resolve(TrainConfig()).reward
    assert equivalence_rule(off) is None and reward_rule(off).floor == -1.0
    words = "--reward.equivalence check --reward.equivalence-penalty 0.3 --reward.floor None"
    args = train.parse(["--config", "configs/quickstart.py", *words.split()])
    reward = resolve(args.run).reward
    assert equivalence_rule(reward).method == "check"
    assert (reward_rule(reward).refuted, reward_rule(reward).floor) == (-0.3, None)


def test_resolved_values_are_final():
    config = resolve(TrainConfig())
    assert resolve(config) == config
    assert json.loads(json.dumps(to_dict(config))) == to_dict(config) | {
        "adapter": to_dict(config)["adapter"] | {"targets": ["all-linear"]},
        "data": to_dict(config)["data"] | {"mix": []},
    }


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return TrainConfig(rl=RLConfig(steps='abc'))", r"Expected `int | null`.*rl.steps"),
        ("return TrainConfig(rl=None)", r"rl"),
        ("return TrainConfig(seed=1.5)", r"Expected `int`.*seed"),
        ("raise SystemExit(5)", "SystemExit: 5"),
    ],
)
def test_values_of_a_wrong_type_in_a_file_are_named(tmp_path, body, says):
    path = tmp_path / "mine.py"
    imports = "from jax_t2sql.config import RLConfig, TrainConfig"
    path.write_text(f"{imports}\ndef get_config():\n    {body}\n")
    with pytest.raises(UserError, match=says):
        load_config(path)


@pytest.mark.parametrize(
    "section",
    [
        {"optimizer": OptimizerConfig(b1=1.0)},
        {"optimizer": OptimizerConfig(weight_decay=float("inf"))},
        {"adapter": AdapterConfig(alpha=float("nan"))},
        {"adapter": AdapterConfig(alpha=-5.0)},
        {"grading": GradingConfig(seconds=1e12)},
    ],
)
def test_values_that_would_end_in_nan_are_refused(section):
    with pytest.raises(UserError, match="it must be"):
        resolve(TrainConfig(**section))
