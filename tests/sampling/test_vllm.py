"""The client and its adapters against a process that speaks vLLM's HTTP, faults included."""

import asyncio
import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jax_t2sql.errors import UserError
from jax_t2sql.learner import LoraSpec
from jax_t2sql.models import export_adapter, init_params, tiny_config
from jax_t2sql.sampling import vllm
from jax_t2sql.sampling.policy import SampleRequest
from jax_t2sql.sampling.vllm import AdapterGone, Refused, VllmClient
from jax_t2sql.sampling.vllm_adapters import AdapterHost, Unproven, check_adapter
from jax_t2sql.sampling.vllm_http import HttpClient, Unreachable
from jax_t2sql.sampling.vllm_server import check_server

CANARY = list(range(10, 30))
CONFIG = tiny_config(300, kv_heads=4)
SPEC = LoraSpec(targets="all-linear", rank=4, alpha=8.0)


@pytest.fixture(scope="module")
def server(fake_vllm):
    return fake_vllm()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(vllm, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(vllm, "_LONGEST_PAUSE", 0.01)


@pytest.fixture(scope="module")
def adapters(tmp_path_factory):
    """Three versions of an adapter; version 0 is fresh, so it changes nothing."""
    root = tmp_path_factory.mktemp("adapters")
    params = init_params(CONFIG, jax.random.key(0), "float32")
    fresh = SPEC.init(params, jax.random.key(1))
    found = []
    for version in range(4):
        adapter = jax.tree.map(lambda x, v=version: x + 0.01 * v, fresh)
        export_adapter(root / f"v{version}", CONFIG, adapter, SPEC)
        found.append(root / f"v{version}")
    return found


def client_of(server, **options):
    return VllmClient(server.url, **({"vocab_size": 50, "stop_ids": [7]} | options))


def request(**changes):
    return SampleRequest(**({"prompt_ids": tuple(CANARY), "seed": 1, "max_tokens": 20} | changes))


def run(server, act, **options):
    """Runs ``act(client)``; what the server has is unloaded first, its faults are over after."""

    async def go():
        client = client_of(server, **options)
        try:
            for name in await client.models():
                if name != "base":
                    await client.unload_adapter(name)
            server.seen()
            return await act(client)
        finally:
            await client.close()
            server.faults()

    return asyncio.run(go())


def sample(server, *, adapter="base", faults=(), **changes):
    async def act(client):
        server.faults(*faults)
        return await client.sample(request(**changes), adapter=adapter, version=3)

    return run(server, act)


def test_a_completion_is_ids_logprobs_and_the_reason_why_it_ended(server):
    ended = [sample(server, seed=seed) for seed in range(20)]
    assert {c.stop for c in ended} == {"stop_token", "length"}
    for completion in ended:
        assert completion.version == 3
        assert all(x <= 0 for x in completion.logprobs)
        if completion.stop == "length":
            assert len(completion.ids) == 20
        else:
            assert completion.ids[-1] == 7
    assert sample(server, seed=4) == ended[4], "the seed decides"


def test_everything_is_said_in_full(server, monkeypatch):
    sent = []

    async def ask(self, method, path, value=None, *, timeout=None):
        sent.append(value)
        return 200, json.dumps(
            {
                "model": "base",
                "choices": [
                    {
                        "token_ids": [3, 4],
                        "logprobs": {"token_logprobs": [-1.0, 1e-6]},
                        "finish_reason": "stop",
                        "stop_reason": "</solution>",
                    }
                ],
            }
        ).encode()

    monkeypatch.setattr(HttpClient, "ask", ask)

    async def act():
        return await client_of(server).sample(
            request(), adapter="base", version=0, stop_strings=("</solution>",)
        )

    completion = asyncio.run(act())
    assert (completion.stop, completion.logprobs) == ("stop_string", (-1.0, 0.0))
    (payload,) = sent
    for name, value in {
        "prompt": CANARY,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "logprobs": 0,
        "return_token_ids": True,
        "include_stop_str_in_output": True,
        "stop": ["</solution>"],
        "stop_token_ids": [7],
        "skip_special_tokens": False,
    }.items():
        assert payload[name] == value, name


@pytest.mark.parametrize("fault", ["500", "503", "429", "408", "drop", "abort"])
def test_passing_trouble_is_asked_again_and_told(server, fault):
    told = []

    async def act(client):
        server.faults([fault, "completions", 3])
        return await client.sample(request(), adapter="base", version=0)

    completion = run(server, act, on_trouble=told.append)
    assert completion.ids == sample(server).ids
    # A connection that was kept and is closed is tried anew at once, without a word.
    assert len([line for line in told if line]) == (2 if fault == "drop" else 3)
    assert told[-1] == ""


@pytest.mark.parametrize("fault", ["500", "drop"])
def test_a_request_at_which_the_server_always_fails_is_refused_in_the_end(server, fault):
    async def act(client):
        server.faults([fault, "completions", 999])
        with pytest.raises(Refused, match="failed 10 times at one request"):
            await client.sample(request(), adapter="base", version=0)
        server.faults()
        return await client.sample(request(), adapter="base", version=0)

    assert run(server, act).ids


def test_overload_is_waited_out_however_long_it_takes(server):
    async def act(client):
        server.faults(["503", "completions", 20], ["429", "completions", 20])
        return await client.sample(request(), adapter="base", version=0)

    assert run(server, act).ids


def test_a_server_that_hangs_is_given_up_and_asked_again(server):
    async def act(client):
        server.faults(["hang", "completions", 1])
        return await client.sample(request(), adapter="base", version=0)

    assert run(server, act, request_seconds=0.3).ids


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("substitute", "asked for a1, answered by base"),
        ("garbage", "no completion"),
        ("nan", "log-probs that are none"),
        ("short", "ids and"),
        ("foreign-id", "the vocabulary has 0..49"),
        ("400", "HTTP 400: fault 400"),
    ],
)
def test_answers_that_cannot_be_believed_are_refused(server, adapters, fault, message):
    async def act(client):
        await client.load_adapter("a1", str(adapters[1]))
        server.faults([fault, "completions", 1])
        await client.sample(request(), adapter="a1", version=1)

    with pytest.raises(Refused, match=message):
        run(server, act)


def test_an_end_token_that_the_tokenizer_does_not_know_is_refused(server):
    with pytest.raises(Refused, match="no end token"):
        for seed in range(20):
            sample(server, faults=[["no-end", "completions", 1]], seed=seed)


def test_an_unknown_adapter_is_an_error_and_never_the_base(server):
    with pytest.raises(AdapterGone, match="a9"):
        sample(server, adapter="a9")


def test_a_lost_answer_to_a_load_is_found_out(server, adapters):
    async def act(client):
        await client.load_adapter("a1", str(adapters[1]))
        await client.load_adapter("a1", str(adapters[1]))
        with pytest.raises(Refused, match="already loaded"):
            await client.load_adapter("a1", str(adapters[2]))
        with pytest.raises(Refused, match="--adapter-cache"):
            await client.load_adapter("a2", "/nowhere")
        server.faults(["500", "load", 9])
        with pytest.raises(Refused, match="fault 500"):
            await client.load_adapter("a3", str(adapters[2]))

    run(server, act)


def test_a_server_without_adapters_says_how_to_start_it(fake_vllm, adapters):
    async def act(client):
        await client.load_adapter("a1", str(adapters[1]))

    with pytest.raises(Refused, match="--enable-lora"):
        run(fake_vllm(static=True), act)


def check(server, **options):
    async def act(client):
        arguments = {"base": None, "canary": CANARY, "max_context": 4096} | options
        return await check_server(client, **arguments)

    return run(server, act)


def test_the_server_is_checked_before_work_begins(server, fake_vllm):
    assert check(server) == "base"
    with pytest.raises(UserError, match="takes 4096 tokens.*--max-model-len 5000"):
        check(server, max_context=5000)
    with pytest.raises(UserError, match="serves base.*not 'other'"):
        check(server, base="other")
    with pytest.raises(UserError, match="--logprobs-mode processed_logprobs"):
        check(fake_vllm(raw=True))


def host(client, **options):
    return AdapterHost(client, **({"config": CONFIG, "base": "base", "canary": CANARY} | options))


def test_versions_follow_each_other_under_their_own_names(server, adapters):
    async def act(client):
        h = host(client)
        scores = []
        for version, directory in enumerate(adapters):
            served = await h.advance(f"a{version}", version=version, directory=directory)
            assert h.latest is served
            scores.append(served.canary)
        assert scores[0] == await h.sing("base"), "fresh is the base"
        assert len(set(scores)) == 4
        return await client.models()

    assert sorted(run(server, act)) == ["a3", "base"], "what nobody uses is unloaded"


def test_an_adapter_in_use_stays_until_it_is_let_go(server, adapters):
    async def act(client):
        h = host(client)
        await h.advance("a1", version=1, directory=adapters[1])
        async with h.use() as old:
            await h.advance("a2", version=2, directory=adapters[2])
            await h.advance("a3", version=3, directory=adapters[3])
            assert {"a1", "a3"} <= set(await client.models())
            async with h.use("a2", version=2, directory=adapters[2]) as pinned:
                assert (old.version, pinned.version, h.latest.version) == (1, 2, 3)
                assert {"a1", "a2", "a3"} <= set(await client.models())
        return await client.models()

    assert sorted(run(server, act)) == ["a3", "base"]


def test_an_adapter_that_the_server_ignores_is_never_used(server, adapters):
    async def act(client):
        h = host(client)
        await h.advance("a0", version=0, directory=adapters[0])
        server.faults(["ignore", "a1", 9])
        with pytest.raises(Unproven, match="the server ignores adapters"):
            await h.advance("a1", version=1, directory=adapters[1])
        assert h.latest.name == "a0"
        assert "a1" not in await client.models()
        server.faults(["hide", "models", 1])
        with pytest.raises(Unproven, match="does not list it"):
            await h.advance("a2", version=2, directory=adapters[2])
        server.faults()
        await h.advance("a2", version=2, directory=adapters[2])
        # The same files under another name, as after a restart of the learner, are no fault.
        await h.advance("b2", version=2, directory=adapters[2])

    run(server, act)


def test_a_base_that_sings_with_an_adapter_at_work_raises_no_alarm(server, adapters, monkeypatch):
    """Beside requests to an adapter, vLLM on CPUs has run those to the base with its weights."""
    alone = AdapterHost.sing

    async def act(client):
        h, beside = host(client), []

        async def sing(self, name):
            if name == "base" and beside:
                return await alone(self, beside.pop())
            return await alone(self, name)

        monkeypatch.setattr(AdapterHost, "sing", sing)
        await h.advance("a1", version=1, directory=adapters[1])
        beside += ["a2"] * 3
        await h.advance("a2", version=2, directory=adapters[2])  # the base was heard before
        second = host(client)  # comes when adapters are loaded already
        beside[:] = ["a3"] * 3
        await second.advance("a3", version=3, directory=adapters[3])
        assert beside == [] and second.latest.name == "a3"
        third = host(client)
        beside[:] = ["b2"] * 20
        with pytest.raises(Unproven, match="the server ignores adapters"):
            await third.advance("b2", version=2, directory=adapters[2])

    run(server, act)


def test_weights_that_do_not_change_are_noticed(server, adapters, monkeypatch):
    async def act(client):
        h = host(client)
        await h.advance("a1", version=1, directory=adapters[1])
        stale = h.latest.canary

        async def sing(self, name):
            return ((1,), (-1.0,)) if name == "base" else stale

        monkeypatch.setattr(AdapterHost, "sing", sing)
        with pytest.raises(Unproven, match="still uses the old one"):
            await h.advance("a2", version=2, directory=adapters[2])

    run(server, act)


def test_after_a_restart_the_adapter_is_loaded_and_proven_again(server, adapters):
    async def act(client):
        h = host(client)
        served = await h.advance("a1", version=1, directory=adapters[1])
        server.faults(["forget", "completions", 1])
        with pytest.raises(AdapterGone):
            await client.sample(request(), adapter="a1", version=1)
        await asyncio.gather(*(h.reload(served) for _ in range(5)))
        loads = [path for path, _ in server.seen()["requests"] if "/load" in path]
        assert len(loads) == 2, "once by all five"
        assert (await client.sample(request(), adapter="a1", version=1)).ids

    run(server, act)


def rewritten(directory, target, change=None, **config):
    """A copy of an adapter with tensors or settings changed."""
    target.mkdir()
    tensors = load_file(directory / "adapter_model.safetensors")
    if change:
        tensors = change(tensors)
    save_file(tensors, target / "adapter_model.safetensors")
    values = json.loads((directory / "adapter_config.json").read_text()) | config
    (target / "adapter_config.json").write_text(json.dumps(values))
    return target


def prefix(tensors):
    return {name.replace("base_model.model.", "base_model."): x for name, x in tensors.items()}


def shape(tensors):
    name = next(name for name in tensors if "lora_A" in name)
    return tensors | {name: np.zeros((4, 3), np.float32)}


@pytest.mark.parametrize(
    ("change", "config", "message"),
    [
        (prefix, {}, "no low-rank factor|adapts no module"),
        (shape, {}, "has shape"),
        (None, {"r": 8}, "has shape"),
        (None, {"use_dora": True}, "use_dora"),
        (None, {"modules_to_save": ["lm_head"]}, "modules_to_save"),
    ],
)
def test_a_wrong_adapter_is_refused_before_it_is_loaded(
    server, adapters, tmp_path, change, config, message
):
    directory = rewritten(adapters[1], tmp_path / "bad", change, **config)

    async def act(client):
        with pytest.raises(UserError, match=message):
            await host(client).advance("bad", version=1, directory=directory)
        assert not [path for path, _ in server.seen()["requests"] if "/load" in path]

    run(server, act)


def test_fresh_adapters_are_told_from_trained_ones(adapters):
    assert [check_adapter(directory, CONFIG) for directory in adapters] == [False, True, True, True]


def test_hundreds_of_requests_share_connections(server):
    async def act(client):
        jobs = [client.sample(request(seed=seed), adapter="base", version=0) for seed in range(300)]
        found = await asyncio.gather(*jobs)
        return len(client.http._idle), found

    idle, found = run(server, act, max_connections=40)
    assert 1 <= idle <= 40 and len(found) == 300


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://a:b"])
def test_a_url_that_is_none_is_refused(url):
    with pytest.raises(UserError, match="give http://HOST:PORT"):
        HttpClient(url)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"hi"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", b"hi"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhi", b"hi"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", None),
        (b"SSH-2.0-x\r\n\r\n", None),
        (b"", None),
        (b"x" * 100_000, None),
    ],
)
def test_http_is_read_strictly(answer, expected):
    async def go():
        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
            writer.close()

        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = HttpClient(f"127.0.0.1:{listening.sockets[0].getsockname()[1]}", timeout=5)
        async with listening:
            if expected is not None:
                assert await client.ask("GET", "/") == (200, expected)
                assert await client.ask("GET", "/") == (200, expected), "a stale connection"
            else:
                with pytest.raises(Unreachable):
                    await client.ask("GET", "/")
        await client.close()

    asyncio.run(go())
