"""What launch/real_model.sh refuses, and what its audit of token truth finds."""

import importlib.util
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from jax_t2sql.bus import Rollout

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def fault_of():
    path = ROOT / "tests" / "bench" / "real_model.py"
    spec = importlib.util.spec_from_file_location("real_model_program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    codec = SimpleNamespace(decode=lambda ids: "".join(map(chr, ids)))
    run = SimpleNamespace(prompts=SimpleNamespace(codec=codec))
    return lambda rollout: module.fault_of(rollout, PROMPT, run)


PROMPT = (112, 113)
# A prompt, a turn "ab", an observation "!", a turn "c".
WHOLE = {
    "ids_T": [*PROMPT, *map(ord, "ab!c")],
    "mask_T": [0, 0, 1, 1, 0, 1],
    "logprobs_T": [0, 0, -1, -2, 0, -3],
    "versions_T": [-1, -1, 4, 4, -1, 4],
}
TURNS = [
    {"role": r, "text": t} for r, t in (("assistant", "ab"), ("tool", "!"), ("assistant", "c"))
]


def rollout(turns=None, **changes):
    record = json.dumps({"turns": TURNS if turns is None else turns})
    arrays = {name: changes.get(name, value) for name, value in WHOLE.items()}
    ids = arrays.pop("ids_T")
    return Rollout.make(ids, **arrays, reward=1.0, terms={}, ending="answered", trace=record)


def test_a_rollout_as_it_was_sampled_has_no_fault(fault_of):
    assert fault_of(rollout()) is None


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (rollout(ids_T=[112, 99, *map(ord, "ab!c")]), "its prompt"),
        (rollout(mask_T=[0, 1, 1, 1, 0, 1]), "its prompt"),
        (rollout(mask_T=[0, 0, 1, 1, 1, 1]), "versions"),
        (rollout(ids_T=[*PROMPT, *map(ord, "aX!c")]), "decodes to"),
        (rollout(logprobs_T=[0, 0, -1, 2, 0, -3]), "log-prob"),
        (rollout(logprobs_T=[0, 0, float("nan"), -2, 0, -3]), "log-prob"),
        (rollout(versions_T=[-1, -1, 4, 4, -1, 5]), "versions"),
        (rollout(turns=TURNS[:1]), "decodes to"),
        (msgspec.structs.replace(rollout(), ids_i32=rollout().ids_i32[:-4]), "lengths"),
    ],
)
def test_any_change_is_a_fault(fault_of, changed, says):
    assert says in fault_of(changed)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "must be spider or tools"),
        (["tools", "--model"], "--model needs a value"),
        (["tools", "--model", "no/such.gguf", "--data", "x", "--databases", "y"], "does not exist"),
        (["spider", "--data", "x"], "--model is missing"),
    ],
)
def test_real_model_refuses_bad_input_before_it_installs_anything(arguments, says, tmp_path):
    script = str(ROOT / "launch" / "real_model.sh")
    environment = {"PATH": "/usr/bin:/bin", "VENV": str(tmp_path / "venv")}
    done = subprocess.run(
        ["bash", script, *arguments], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 2 and says in done.stderr and not (tmp_path / "venv").exists()
