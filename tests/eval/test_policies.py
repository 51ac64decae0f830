"""Policies that sample: in this process, on a vLLM server, behind a chat endpoint."""

import json

import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.eval.__main__ import main
from jax_t2sql.eval.specs import PolicySpec, parse_policy
from jax_t2sql.scores.records import AnswerRow, read_rows


def arguments(fleet, out, policy, *options):
    return [
        *("--data", str(fleet.root / "train.jsonl"), "--databases", str(fleet.root)),
        *("--policy", policy, "--out", str(out), "--style", "question", "--max-tokens", "48"),
        *("--workers", "1", *options),
    ]


def results(out):
    return json.loads((out / "results.json").read_text())


@pytest.fixture(scope="module")
def server(fake_vllm, fleet):
    return fake_vllm(
        vocab=fleet.model.config.vocab_size,
        stop=min(fleet.model.tokenizer.stop_ids),
        tokenizer=str(fleet.root / "model"),
        answers=fleet.questions,
    )


def test_a_server_answers_greedily_and_in_samples(fleet, server, tmp_path):
    policy, model = f"vllm:{server.url}/v1", str(fleet.root / "model")
    options = ("--model", model, "--candidates", "6", "--concurrency", "4")
    server.seen()
    assert main(arguments(fleet, tmp_path, policy, *options)) == 0
    found = results(tmp_path)
    assert (found["accuracy"], found["decoding"], found["n"]) == (1.0, "greedy", 8)
    curve = found["self_consistency"]
    assert curve["n"] == [1, 2, 3, 4, 5, 6]
    assert 0 < curve["pass_at_k"][0] < 1 == round(curve["pass_at_k"][-1] + 0.49)
    answers = read_rows(tmp_path / "answers.jsonl", AnswerRow)
    assert len(answers) == 8 * 7 and {a.decoding for a in answers} == {"greedy", "sample"}
    assert all(a.completion_tokens and a.prompt_tokens and a.messages for a in answers)
    asked = [path for path, _ in server.seen()["requests"] if path.endswith("completions")]
    assert len(asked) == 8 * 7
    assert main(arguments(fleet, tmp_path, policy, *options)) == 0
    seen = [path for path, _ in server.seen()["requests"] if path.endswith("completions")]
    assert not seen, "what is answered is not asked again"
    assert results(tmp_path) == found
    with pytest.raises(UserError, match=r"decoding.candidates was 6, now 5"):
        main(arguments(fleet, tmp_path, policy, *options[:2], "--candidates", "5"))


def test_an_adapter_is_loaded_under_a_name_of_its_content(fleet, server, tmp_path):
    policy = f"vllm:{server.url}+{fleet.adapters[1]}"
    assert main(arguments(fleet, tmp_path, policy, "--model", str(fleet.root / "model"))) == 0
    (name,) = server.seen()["adapters"]
    assert name.startswith("eval-") and results(tmp_path)["manifest"]["adapter_sha256"][:16] in name
    with pytest.raises(UserError, match="serves no 'other'"):
        main(
            arguments(fleet, tmp_path / "b", f"vllm:{server.url}+other")
            + ["--model", str(fleet.root / "model")]
        )
    with pytest.raises(UserError, match=r"'base' is no folder here with config.json"):
        main(arguments(fleet, tmp_path / "c", f"vllm:{server.url}"))


def test_the_engine_gives_the_same_answers_whatever_was_done_before(fleet, tmp_path):
    policy = f"local:{fleet.root / 'model'}+{fleet.adapters[2]}"
    options = ("--candidates", "2", "--rows", "8", "--questions", "4", "--max-tokens", "8")
    assert main(arguments(fleet, tmp_path / "a", policy, *options)) == 0
    whole = (tmp_path / "a" / "answers.jsonl").read_text().splitlines()
    assert len(whole) == 12
    torn = tmp_path / "b"
    torn.mkdir()
    for name in ("manifest.json", "questions.jsonl"):
        (torn / name).write_bytes((tmp_path / "a" / name).read_bytes())
    (torn / "answers.jsonl").write_text("\n".join(whole[:7]) + "\n" + whole[7][:9])
    assert main(arguments(fleet, torn, policy, *options)) == 0

    def said(folder):
        rows = read_rows(folder / "answers.jsonl", AnswerRow)
        return {row.id: (row.sql, row.ending, row.completion_tokens) for row in rows}

    assert said(torn) == said(tmp_path / "a")
    with pytest.raises(UserError, match="adapter_sha256 was"):
        main(arguments(fleet, torn, f"local:{fleet.root / 'model'}", *options))


def test_policy_names(tmp_path):
    assert parse_policy("local:a/b") == PolicySpec("local", "a/b")
    assert parse_policy("local:a/b+c/d") == PolicySpec("local", "a/b", "c/d")
    odd = tmp_path / "a+b"
    odd.mkdir()
    assert parse_policy(f"local:{odd}").target == str(odd)
    assert parse_policy("openai:https://host/v1?a+b").adapter is None
    assert parse_policy("vllm:http://h:1/v1+name") == PolicySpec("vllm", "http://h:1", "name")
    for wrong in ("openai:notaurl", "openai:ftp://h", "vllm:h:1", "vllm:http://h:99999"):
        with pytest.raises(UserError, match="give .*http://HOST:PORT"):
            parse_policy(wrong)
    for wrong in ("a/b", "local:", "remote:x"):
        with pytest.raises(UserError, match="must be local:MODEL"):
            parse_policy(wrong)
    with pytest.raises(UserError, match="an adapter after the"):
        parse_policy("vllm:http://host+")
