"""Adapters in PEFT's format: round trip, the `peft` library itself, and refusals."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jax_t2sql.errors import UserError
from jax_t2sql.learner import LoraSpec
from jax_t2sql.models import export_adapter, hidden_fn, load_adapter, save_hf, unembed_fn

WEIGHTS = "adapter_model.safetensors"
SPEC = LoraSpec(rank=4, alpha=6)


@pytest.fixture
def saved(make_config, make_adapter, tmp_path):
    config = make_config("llama")
    export_adapter(tmp_path / "adapter", config, make_adapter(config, SPEC), SPEC)
    return config, tmp_path / "adapter"


@pytest.mark.parametrize("targets", ["all-linear", ("q_proj|v_proj",), ("lm_head", "down_proj")])
def test_round_trip(targets, make_config, make_adapter, tmp_path):
    config, spec = make_config("llama"), dataclasses.replace(SPEC, targets=targets)
    adapter = make_adapter(config, spec)
    export_adapter(tmp_path, config, adapter, spec, base_model="base")
    again = load_adapter(tmp_path, config, spec=spec)
    assert jax.tree.structure(again) == jax.tree.structure(adapter)
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(adapter), strict=True):
        np.testing.assert_array_equal(a, b)
    values = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (values["r"], values["lora_alpha"]) == (4, 6)
    assert values["base_model_name_or_path"] == "base"


def test_file_names_are_those_that_peft_and_vllm_read(saved):
    tensors = load_file(saved[1] / WEIGHTS)
    stem = "base_model.model.model.layers.1.mlp.gate_proj"
    assert tensors[f"{stem}.lora_A.weight"].shape == (4, 64)
    assert tensors[f"{stem}.lora_B.weight"].shape == (96, 4)
    assert len(tensors) == 2 * 7 * 2


def logits(model, adapter, tokens):
    positions = np.broadcast_to(np.arange(tokens.shape[1], dtype=np.int32), tokens.shape)
    run = jax.jit(hidden_fn(model.config))
    hidden = run(model.params, adapter, tokens, positions, np.ones_like(tokens))
    return unembed_fn(model.config)(model.params, adapter, hidden)


@pytest.mark.parity
@pytest.mark.parametrize("rslora", [False, True])
def test_the_peft_library_computes_the_same(qwen3, make_adapter, tmp_path, rslora):
    torch = pytest.importorskip("torch", reason="needs pip install -e '.[parity]'")
    peft = pytest.importorskip("peft", reason="needs pip install -e '.[parity]'")
    transformers = pytest.importorskip("transformers", reason="needs pip install -e '.[parity]'")

    save_hf(qwen3, tmp_path / "base")
    export_adapter(tmp_path / "adapter", qwen3.config, make_adapter(qwen3.config, SPEC), SPEC)
    if rslora:
        edit_config(tmp_path / "adapter", use_rslora=True)
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    tokens = np.random.default_rng(0).integers(0, 320, (2, 24)).astype(np.int32)
    with torch.no_grad():
        expected = theirs(torch.tensor(tokens, dtype=torch.long)).logits.numpy()
    # What peft saves is read too.
    theirs.save_pretrained(tmp_path / "theirs")
    for directory in ("adapter", "theirs"):
        adapter = load_adapter(tmp_path / directory, qwen3.config)
        np.testing.assert_allclose(logits(qwen3, adapter, tokens), expected, atol=1e-4, rtol=0)
    assert np.abs(logits(qwen3, None, tokens) - expected).max() > 0.1


SPARSE = ("qwen3_moe", "deepseek_v3", "glm4_moe")


@pytest.mark.parametrize("family", ["qwen3", *SPARSE])
def test_reading_and_writing_again_gives_the_same_bytes(
    family, make_config, make_sparse, make_adapter, tmp_path
):
    config = make_sparse(family) if family in SPARSE else make_config(family)
    export_adapter(tmp_path / "first", config, make_adapter(config, SPEC), SPEC)
    adapter = load_adapter(tmp_path / "first", config, spec=SPEC)
    export_adapter(tmp_path / "again", config, adapter, SPEC)
    for name in (WEIGHTS, "adapter_config.json"):
        first, again = (tmp_path / "first" / name), (tmp_path / "again" / name)
        assert first.read_bytes() == again.read_bytes()


def test_experts_have_the_names_that_vllm_reads(make_sparse, make_adapter, tmp_path):
    config = make_sparse("deepseek_v3")
    export_adapter(tmp_path, config, make_adapter(config, SPEC), SPEC)
    tensors = load_file(tmp_path / WEIGHTS)
    stem = "base_model.model.model.layers.2"
    assert tensors[f"{stem}.mlp.experts.7.down_proj.lora_A.weight"].shape == (4, 28)
    assert tensors[f"{stem}.mlp.shared_experts.up_proj.lora_B.weight"].shape == (28, 4)
    assert tensors[f"{stem}.self_attn.kv_a_proj_with_mqa.lora_B.weight"].shape == (24, 4)
    assert not [name for name in tensors if "mlp.gate." in name]


@pytest.mark.parity
@pytest.mark.parametrize("family", SPARSE)
def test_the_peft_library_adapts_mixtures_the_same(
    family, qwen3, make_sparse, make_params, make_adapter, tmp_path
):
    torch = pytest.importorskip("torch", reason="needs pip install -e '.[parity]'")
    peft = pytest.importorskip("peft", reason="needs pip install -e '.[parity]'")
    transformers = pytest.importorskip("transformers", reason="needs pip install -e '.[parity]'")
    config = make_sparse(family)
    model = dataclasses.replace(qwen3, config=config, params=make_params(config))
    save_hf(model, tmp_path / "base")
    adapter = make_adapter(config, SPEC)
    export_adapter(tmp_path / "adapter", config, adapter, SPEC)
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    tokens = np.random.default_rng(0).integers(0, 320, (2, 24)).astype(np.int32)
    with torch.no_grad():
        expected = theirs(torch.tensor(tokens, dtype=torch.long)).logits.numpy()
    np.testing.assert_allclose(logits(model, adapter, tokens), expected, atol=2e-4, rtol=0)
    assert np.abs(logits(model, None, tokens) - expected).max() > 0.1


def edit_config(directory, **changes):
    path = directory / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_tensors(directory, change):
    tensors = load_file(directory / WEIGHTS)
    change(tensors)
    save_file(tensors, directory / WEIGHTS)


NAME = "base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight"


def test_wrong_shape_names_the_tensor_and_both_shapes(saved):
    config, directory = saved
    edit_tensors(directory, lambda t: t.update({NAME: np.zeros((63, 4), np.float32)}))
    with pytest.raises(UserError) as error:
        load_adapter(directory, config)
    assert all(word in str(error.value) for word in (NAME, "[63, 4]", "[64, 4]"))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda d: edit_tensors(d, lambda t: t.pop(NAME)), f"lacks the tensor '{NAME}'"),
        (
            lambda d: edit_tensors(d, lambda t: t.update({"x.lora_C": np.zeros(1, np.float32)})),
            "holds the tensor 'x.lora_C'",
        ),
        (lambda d: edit_tensors(d, lambda t: t.clear()), "adapts no module"),
        (lambda d: (d / WEIGHTS).unlink(), f"{WEIGHTS} is missing"),
        (lambda d: (d / WEIGHTS).write_bytes(b"12345678901"), "corrupt or cut off"),
        (lambda d: (d / "adapter_config.json").unlink(), "cannot read .*adapter_config.json"),
        (lambda d: edit_config(d, r=0), "needs r >= 1"),
        (lambda d: edit_config(d, r=8), r"\[4, \d+\].*\[8, \d+\]"),
        (lambda d: edit_config(d, use_dora=True), "use_dora"),
        (lambda d: edit_config(d, modules_to_save=["lm_head"]), "modules_to_save"),
        (lambda d: edit_config(d, rank_pattern={"q_proj": 2}), "rank_pattern"),
        (lambda d: edit_config(d, peft_type="IA3"), "peft_type 'IA3'"),
        (lambda d: edit_config(d, bias="all"), "bias 'all'"),
    ],
)
def test_bad_adapters(saved, damage, words):
    config, directory = saved
    damage(directory)
    with pytest.raises(UserError, match=words):
        load_adapter(directory, config)


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"targets": ("q_proj",)}, "this run trains q_proj"), ({"alpha": 8}, "rank and alpha")],
)
def test_an_adapter_of_another_run_is_refused(saved, changes, words):
    config, directory = saved
    with pytest.raises(UserError, match=words):
        load_adapter(directory, config, spec=dataclasses.replace(SPEC, **changes))


def test_a_head_adapter_needs_a_head(make_config, make_adapter, tmp_path):
    spec = LoraSpec(targets=("lm_head",), rank=2)
    untied = make_config("llama")
    export_adapter(tmp_path, untied, make_adapter(untied, spec), spec)
    with pytest.raises(UserError, match="ties it to its embedding"):
        load_adapter(tmp_path, make_config("llama", tie_embeddings=True))


def test_float16_factors_become_float32(saved):
    config, directory = saved
    edit_tensors(directory, lambda t: t.update({k: v.astype(np.float16) for k, v in t.items()}))
    leaves = jax.tree.leaves(load_adapter(directory, config))
    assert {leaf.dtype for leaf in leaves} == {jnp.dtype("float32")}
