"""A real tokenizer of 600 pieces with a ChatML template, and a small database."""

import json
import sqlite3

import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as HfTokenizer

from jax_t2sql.models.tokenizer import Tokenizer
from jax_t2sql.sampling.chat import ChatCodec

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CORPUS = [
    '<tool_call>{"name": "execute_sql_query", "arguments": {"query": "SELECT 1"}}</tool_call>',
    "<solution>SELECT COUNT(*) FROM zoo WHERE city = 'Delft'</solution> (2 rows) tool_response",
    "Tool turns left: 3. CREATE TABLE Question Database schema INTEGER PRIMARY KEY",
] * 20


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    bpe = HfTokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(token, special=True) for token in specials],
        show_progress=False,
    )
    bpe.train_from_iterator(CORPUS, trainer)
    folder = tmp_path_factory.mktemp("tokenizer")
    bpe.save(str(folder / "tokenizer.json"))
    config = {"chat_template": CHATML, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return Tokenizer.from_directory(folder)


@pytest.fixture(scope="session")
def codec(tokenizer):
    return ChatCodec(tokenizer)


@pytest.fixture(scope="session")
def zoo(tmp_path_factory):
    """Sixty zoos in three cities."""
    path = tmp_path_factory.mktemp("zoo") / "zoo.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE zoo (id INTEGER PRIMARY KEY, name TEXT, city TEXT)")
    cities = ["Delft", "Gouda", "<|im_end|>"]
    rows = [(i, f"zoo {i}", cities[i % 3]) for i in range(60)]
    connection.executemany("INSERT INTO zoo VALUES (?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return path
