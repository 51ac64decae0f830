"""Chat templates as their models come with them: rendered as transformers does, calls read back.

JAX_T2SQL_TEMPLATES names a folder of .jinja files; llama.cpp's models/templates, which the source
package of llama-cpp-python has in its vendor/ folder, is one.
"""

import os
import re
from pathlib import Path

import pytest
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as HfTokenizer

from jax_t2sql.models.chat_template import render_chat
from jax_t2sql.models.tokenizer import Tokenizer
from jax_t2sql.sampling.chat import ChatCodec
from jax_t2sql.text2sql.protocol import Call, parse
from jax_t2sql.text2sql.tool_formats import tool_format_of

pytestmark = pytest.mark.parity

# File name to the format that the model was taught.
PUBLISHED = {
    "Qwen-Qwen2.5-7B-Instruct": "hermes",
    "Qwen-Qwen3-0.6B": "hermes",
    "Qwen3-Coder": "qwen3_coder",
    "Qwen3.5-4B": "qwen3_coder",
    "GLM-4.6": "glm",
    "GLM-4.7-Flash": "glm",
    "meta-llama-Llama-3.1-8B-Instruct": "llama",
    "meta-llama-Llama-3.2-3B-Instruct": "llama",
    "moonshotai-Kimi-K2": "kimi",
    "Kimi-K2-Instruct": "kimi",
    "Kimi-K2-Thinking": "kimi",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "deepseek",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "deepseek",
    "deepseek-ai-DeepSeek-V3.1": "deepseek",
    "HuggingFaceTB-SmolLM3-3B": "hermes",
    "LFM2.5-8B-A1B": "hermes",
}
SPECIAL = re.compile(
    r"<\|[^|<>]+\|>|<｜[^｜<>]+｜>|\[gMASK\]|<sop>|</?(?:think|tool_call|arg_\w+)>"
)
SPLIT = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
ENDS = {"bos_token": "<|begin|>", "eos_token": "<|end|>", "pad_token": "<|pad|>"}
SQL = "SELECT \"a b\", 'é\\n' || x[1]]\nFROM t WHERE y < 3 AND z LIKE '%\\_%' ESCAPE '\\'"
CONVERSATIONS = [
    ["How many zoos?"],
    ["Be brief.", "How many zoos?\nCount <b>them</b>."],
    ["Be brief.", "How many?", SQL, "| a |\n(1 row)"],
    ["Be brief.", "How many?", "SELECT 1", "(1 row)", "SELECT 2", "(2 rows)"],
]


def conversation(contents):
    roles = ["user"] if len(contents) == 1 else ["system", *["user", "assistant"] * 3]
    return [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]


def read_template(name):
    folder = os.environ.get("JAX_T2SQL_TEMPLATES")
    if not folder:
        pytest.skip("no chat templates: set JAX_T2SQL_TEMPLATES to a folder of .jinja files")
    path = Path(folder) / f"{name}.jinja"
    if not path.is_file():
        pytest.skip(f"no {path}")
    return path.read_text()


@pytest.fixture(scope="module", params=PUBLISHED)
def both(request, tmp_path_factory):
    """Our tokenizer and transformers' with the template and its special tokens."""
    transformers = pytest.importorskip("transformers", reason="needs the [parity] extra")
    bpe = HfTokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    template = read_template(request.param)
    specials = sorted({*SPECIAL.findall(template), *ENDS.values()})
    trainer = trainers.BpeTrainer(
        vocab_size=350 + len(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(token, special=True) for token in specials],
        show_progress=False,
    )
    bpe.train_from_iterator(["system user assistant\n\nSELECT count FROM zoo\n"] * 9, trainer)
    folder = tmp_path_factory.mktemp("tokenizer")
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe, chat_template=template, **ENDS
    )
    theirs.save_pretrained(folder)
    return Tokenizer.from_directory(folder), theirs


def test_text_and_ids_are_those_of_transformers(both):
    ours, theirs = both
    codec = ChatCodec(ours)
    for contents in CONVERSATIONS:
        messages = conversation(contents)
        options = {"add_generation_prompt": True}
        text = theirs.apply_chat_template(messages, tokenize=False, **options)
        assert ours.render(messages) == text
        ids = theirs.apply_chat_template(messages, return_dict=False, **options)
        assert list(codec.encode_prompt(messages)) == list(ids)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_format_is_told_by_the_template(name):
    assert tool_format_of(read_template(name)).name == PUBLISHED[name]


# The others print calls only of tools that they declare themselves, or none; the later ones of
# Kimi change lists, which transformers' sandbox refuses as well.
@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("Qwen-Qwen2.5-7B-Instruct", True),
        ("Qwen-Qwen3-0.6B", True),
        ("Qwen3-Coder", True),
        ("Qwen3.5-4B", True),
        ("GLM-4.6", True),
        ("GLM-4.7-Flash", False),  # the same without line breaks
        ("moonshotai-Kimi-K2", True),
        ("deepseek-ai-DeepSeek-V3.1", True),
    ],
)
def test_the_call_that_the_template_prints_is_read_and_is_ours(name, whole):
    template = read_template(name)
    form = tool_format_of(template)
    function = {"name": "execute_sql_query", "arguments": {"query": SQL}}
    call = {"type": "function", "id": "functions.execute_sql_query:0", "function": function}
    messages = [
        *conversation(["Be brief.", "How many?"]),
        {"role": "assistant", "content": "First I look.", "tool_calls": [call]},
    ]
    printed = render_chat(template, messages, add_generation_prompt=False, special_tokens=ENDS)
    said = printed.partition("How many?")[2]
    assert parse(said, "tools", tools=form) == Call(SQL), said
    assert (form.write(SQL) in said) == whole
