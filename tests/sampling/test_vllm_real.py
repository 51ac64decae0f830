"""A real vLLM server on a tiny random model: what the fake one only claims.

One server for all tests of this file; it takes one or two minutes to come up.
"""

import asyncio
import contextlib
import dataclasses
import json
import math
import os
import socket
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jax_t2sql.errors import UserError
from jax_t2sql.eval.__main__ import main
from jax_t2sql.models import hidden_fn, load_adapter, unembed_fn
from jax_t2sql.sampling.policy import SampleRequest
from jax_t2sql.sampling.vllm import AdapterGone, Refused, VllmClient
from jax_t2sql.sampling.vllm_adapters import AdapterHost
from jax_t2sql.sampling.vllm_server import VllmServer, check_server, server_command
from jax_t2sql.scores.records import AnswerRow, read_rows

pytestmark = pytest.mark.vllm

ARGUMENTS = ("--dtype", "float32", "--enforce-eager", "--max-num-seqs", "16")


@pytest.fixture(scope="module")
def url(vllm_python, fleet, tmp_path_factory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1")
    address = f"http://127.0.0.1:{port}"
    command = server_command(
        vllm_python,
        model=str(fleet.root / "model"),
        port=port,
        max_context=256,
        max_rank=8,
        extra=ARGUMENTS,
    )
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    up = threading.Event()
    server = VllmServer(
        command, url=address, log=log, say=lambda line: up.set() if "is up" in line else None
    )
    loop = asyncio.new_event_loop()
    watching = loop.create_task(server.watch())

    def watch():
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(watching)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        while not up.wait(0.5):
            assert thread.is_alive(), log.read_text()[-3000:]
        yield address
    finally:
        loop.call_soon_threadsafe(watching.cancel)
        thread.join()
        loop.close()
    assert server.process.poll() is not None, "it is gone with its watcher"


def canary(fleet):
    return fleet.model.tokenizer.encode("What is the name of person 3? SELECT name FROM people")


def run(url, fleet, act):
    async def go():
        client = VllmClient(
            url,
            vocab_size=fleet.model.config.vocab_size,
            stop_ids=fleet.model.tokenizer.stop_ids,
        )
        try:
            return await act(client)
        finally:
            await client.close()

    return asyncio.run(go())


def host_of(client, fleet, **options):
    return AdapterHost(
        client, config=fleet.model.config, base="base", canary=canary(fleet), **options
    )


def request(fleet, **changes):
    fields = {"prompt_ids": tuple(canary(fleet)[:8]), "seed": 1, "max_tokens": 40} | changes
    return SampleRequest(**fields)


def our_logprobs(fleet, adapter, prompt, ids, temperature=1.0):
    """Log-probs of `ids` after `prompt` by our own model."""
    tokens = jnp.asarray([[*prompt, *ids]])
    positions = jnp.arange(tokens.shape[1])[None]
    segments = jnp.ones_like(tokens)
    base = fleet.model.params
    hidden = hidden_fn(fleet.model.config)(base, adapter, tokens, positions, segments)
    logits = unembed_fn(fleet.model.config)(base, adapter, hidden)[0] / temperature
    logprobs = jax.nn.log_softmax(logits)
    start = len(prompt) - 1
    return np.array([logprobs[start + n, i] for n, i in enumerate(ids)])


def merged(fleet, directory):
    """Our base with an adapter's product added to its kernels."""
    adapter = load_adapter(directory, fleet.model.config)
    params = jax.tree.map(lambda x: x, fleet.model.params)
    layers = {**params["layers"]}
    for name, pair in adapter["layers"].items():
        kernel = layers[name]["kernel"]
        delta = pair.scale * jnp.einsum("lir,lro->lio", pair.a, pair.b)
        layers[name] = {**layers[name], "kernel": kernel + delta.reshape(kernel.shape)}
    return {**params, "layers": layers}


def test_the_server_passes_its_check(url, fleet):
    async def act(client):
        return await check_server(client, base=None, canary=canary(fleet), max_context=256)

    assert run(url, fleet, act) == "base"


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_logprobs_are_ours_to_1e4(url, fleet, temperature):
    async def act(client):
        jobs = [
            client.sample(
                request(fleet, seed=seed, temperature=temperature), adapter="base", version=0
            )
            for seed in range(8)
        ]
        return await asyncio.gather(*jobs)

    completions = run(url, fleet, act)
    assert len({c.ids for c in completions}) > 1
    for c in completions:
        ours = our_logprobs(fleet, None, canary(fleet)[:8], c.ids, temperature)
        np.testing.assert_allclose(c.logprobs, ours, atol=1e-4)


def test_versions_change_the_output_as_merged_weights_do(url, fleet):
    async def act(client):
        host = host_of(client, fleet)
        found = []
        for version, directory in enumerate(fleet.adapters):
            name = f"real-e0-s{version}-00000000"
            await host.advance(name, version=version, directory=directory)
            served = sorted(await client.models())
            assert served == sorted(["base", name]), "the one before is unloaded"
            found.append(await client.sample(request(fleet), adapter=name, version=version))
        base = await client.sample(request(fleet), adapter="base", version=0)
        return base, found

    base, completions = run(url, fleet, act)
    assert completions[0].logprobs == pytest.approx(base.logprobs, abs=1e-4), "fresh is the base"
    assert len({c.logprobs for c in completions}) == 4
    for directory, c in zip(fleet.adapters, completions, strict=True):
        adapter = load_adapter(directory, fleet.model.config)
        ours = our_logprobs(fleet, adapter, canary(fleet)[:8], c.ids)
        np.testing.assert_allclose(c.logprobs, ours, atol=1e-4)
    whole = dataclass_with(fleet, merged(fleet, fleet.adapters[3]))
    ours = our_logprobs(whole, None, canary(fleet)[:8], completions[3].ids)
    np.testing.assert_allclose(completions[3].logprobs, ours, atol=1e-4)


def dataclass_with(fleet, params):
    return dataclasses.replace(fleet, model=dataclasses.replace(fleet.model, params=params))


def test_an_unknown_adapter_is_an_error(url, fleet):
    async def act(client):
        with pytest.raises(AdapterGone):
            await client.sample(request(fleet), adapter="never-loaded", version=0)

    run(url, fleet, act)


@pytest.mark.parametrize("fault", ["prefix", "shape"])
def test_a_wrong_adapter_is_refused_before_it_is_loaded(url, fleet, tmp_path, fault):
    tensors = load_file(fleet.adapters[1] / "adapter_model.safetensors")
    if fault == "prefix":
        tensors = {name.replace("base_model.model.", "model."): x for name, x in tensors.items()}
    else:
        name = next(name for name in tensors if "lora_A" in name)
        tensors[name] = np.zeros((8, 5), np.float32)
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    config = (fleet.adapters[1] / "adapter_config.json").read_text()
    (tmp_path / "adapter_config.json").write_text(config)

    async def act(client):
        with pytest.raises(UserError):
            await host_of(client, fleet).advance("wrong", version=1, directory=tmp_path)
        assert "wrong" not in await client.models()

    run(url, fleet, act)


def test_turns_end_as_the_request_says(url, fleet):
    async def act(client):
        jobs = [
            client.sample(
                request(fleet, seed=seed, max_tokens=100),
                adapter="base",
                version=0,
                stop_strings=("e",),
            )
            for seed in range(8)
        ]
        return await asyncio.gather(*jobs)

    completions = run(url, fleet, act)
    assert "stop_string" in {c.stop for c in completions}
    for c in completions:
        text = fleet.model.tokenizer.decode(c.ids)
        if c.stop == "stop_string":
            assert text.count("e") >= 1 and "e" not in fleet.model.tokenizer.decode(c.ids[:-1])
        if c.stop == "stop_token":
            assert c.ids[-1] in fleet.model.tokenizer.stop_ids
        assert len(c.ids) == len(c.logprobs) and all(math.isfinite(x) for x in c.logprobs)


def test_a_request_that_is_too_long_is_refused_at_once(url, fleet):
    async def act(client):
        with pytest.raises(Refused, match="HTTP 400"):
            await client.sample(request(fleet, max_tokens=1000), adapter="base", version=0)

    run(url, fleet, act)


def test_an_evaluation_asks_it_greedily_and_for_samples(url, fleet, tmp_path):
    arguments = [
        *("--data", str(fleet.root / "train.jsonl"), "--databases", str(fleet.root)),
        *("--policy", f"vllm:{url}", "--out", str(tmp_path), "--style", "question"),
        *("--questions", "3", "--candidates", "2", "--max-tokens", "48", "--workers", "1"),
    ]
    assert main(arguments) == 0
    found = json.loads((tmp_path / "results.json").read_text())
    assert (found["n"], found["decoding"]) == (3, "greedy") and "error" not in found["endings"]
    assert found["self_consistency"]["n"] == [1, 2]
    answers = read_rows(tmp_path / "answers.jsonl", AnswerRow)
    assert sorted(answer.candidate for answer in answers) == [0] * 3 + [1] * 3 + [2] * 3
    assert all(answer.prompt_tokens and answer.completion_tokens for answer in answers)
    said = [answer.messages[0].content for answer in answers if answer.candidate]
    assert len(set(said)) > 1
