"""Ids, special tokens, chat templates, and the tokenizer trained on the spot."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_t2sql.errors import UserError
from jax_t2sql.models import Tokenizer, train_tokenizer

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "How many?"},
    {"role": "assistant", "content": "SELECT 1"},
    {"role": "user", "content": "Again"},
]


@given(text=st.text())
def test_every_text_survives(tokenizer, text):
    clean = text.encode("utf-8", "replace").decode()
    assert tokenizer.decode(tokenizer.encode(clean)) == clean


def test_special_tokens_are_text_unless_asked_for(tokenizer):
    text = "SELECT '<|im_end|>'"
    end = tokenizer.token_id("<|im_end|>")
    assert end not in tokenizer.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    ids = tokenizer.encode(text, special=True)
    assert ids.count(end) == 1
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(ids, skip_special=True) == "SELECT ''"


def test_digits_are_single_tokens(tokenizer):
    inside, alone = tokenizer.encode("total>12050;"), tokenizer.encode("12050")
    assert len(alone) == 5
    assert any(inside[i : i + 5] == alone for i in range(len(inside)))


def test_ends_and_padding(tokenizer):
    assert tokenizer.stop_ids[0] == tokenizer.token_id("<|im_end|>")
    assert tokenizer.pad_id == tokenizer.token_id("<|endoftext|>")
    assert tokenizer.vocab_size == 320


def test_the_tiny_template_costs_two_tokens_a_question(tokenizer):
    text = tokenizer.render([{"role": "user", "content": "How many?"}])
    ids = tokenizer.encode(text, special=True)
    question = tokenizer.encode("How many?")
    start, end = (tokenizer.token_id(t) for t in ("<|im_start|>", "<|im_end|>"))
    assert ids == [*question, end, start]


def test_training_is_deterministic_across_processes(tokenizer):
    program = (
        "import hashlib; from jax_t2sql.models import train_tokenizer;"
        "t = train_tokenizer([f'SELECT c{i % 7} FROM t{i % 5} -- row {i}' for i in range(200)]);"
        "print(hashlib.sha256(t._backend.to_str().encode()).hexdigest())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1] != ""


def test_a_vocabulary_smaller_than_the_bytes_is_refused():
    with pytest.raises(UserError, match="vocab_size is 200.*259"):
        train_tokenizer(["a"], vocab_size=200)


def test_save_and_read_back(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    again = Tokenizer.from_directory(tmp_path)
    assert again.encode("größer 12") == tokenizer.encode("größer 12")
    assert again.stop_ids == tokenizer.stop_ids
    assert again.pad_id == tokenizer.pad_id
    assert again.render(MESSAGES) == tokenizer.render(MESSAGES)


def test_ends_come_from_the_generation_config_first(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    (tmp_path / "config.json").write_text('{"eos_token_id": 7}')
    assert 7 in Tokenizer.from_directory(tmp_path).stop_ids
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [8, 9]}')
    assert {8, 9} <= set(Tokenizer.from_directory(tmp_path).stop_ids)
    assert 7 not in Tokenizer.from_directory(tmp_path).stop_ids


@pytest.fixture
def with_template(tokenizer, tmp_path):
    """A function that gives the tokenizer another template, by each way it may be stored."""

    def make(template, *, where="config"):
        tokenizer.save(tmp_path)
        path = tmp_path / "tokenizer_config.json"
        values = json.loads(path.read_text())
        del values["chat_template"]
        if where == "config":
            values["chat_template"] = template
        elif where == "list":
            values["chat_template"] = [
                {"name": "tool_use", "template": "wrong"},
                {"name": "default", "template": template},
            ]
        elif where == "file":
            (tmp_path / "chat_template.jinja").write_text(template)
        path.write_text(json.dumps(values))
        return Tokenizer.from_directory(tmp_path)

    return make


@pytest.mark.parametrize("where", ["config", "list", "file"])
def test_where_templates_are_found(with_template, where):
    template = (
        "{% for m in messages %}[{{ m.role }}]{{ m['content'] | trim }}{{ eos_token }}{% endfor %}"
    )
    text = with_template(template, where=where).render(MESSAGES[1:2])
    assert text == "[user]How many?<|im_end|>"


def test_without_a_template_chatml_is_used_where_its_tokens_exist(with_template):
    text = with_template(None, where="none").render(MESSAGES[1:3], add_generation_prompt=False)
    assert text == (
        "<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\nSELECT 1<|im_end|>\n"
    )


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for %}", "chat template failed"),
        ("{{ messages[0].content + 1 }}", "chat template failed"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe|not safely callable"),
    ],
)
def test_templates_that_fail_or_break_out(with_template, template, words):
    with pytest.raises(UserError, match=words):
        with_template(template).render(MESSAGES)


def test_no_template_and_no_chatml(tmp_path):
    from tokenizers import Tokenizer as Backend
    from tokenizers import models

    backend = Backend(models.BPE(vocab={"a": 0, "</s>": 1}, merges=[]))
    with pytest.raises(UserError, match="no chat template"):
        Tokenizer(backend, eos_token="</s>").render(MESSAGES)
    with pytest.raises(UserError, match="no end token"):
        Tokenizer(backend)
    with pytest.raises(UserError, match="eos_token 'b' is not in the vocabulary"):
        Tokenizer(backend, eos_token="b")


@pytest.mark.parametrize(
    ("content", "words"), [(None, "no tokenizer.json"), ("{", "not a readable tokenizer")]
)
def test_missing_and_corrupt_files(tmp_path, content, words):
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(UserError, match=words):
        Tokenizer.from_directory(tmp_path)
