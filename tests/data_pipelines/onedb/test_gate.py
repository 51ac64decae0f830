"""The gate on a scripted policy, and its table."""

import pytest

from data_pipelines.onedb.gate import run_gate
from data_pipelines.onedb.gate_table import print_gate
from jax_t2sql.errors import UserError
from jax_t2sql.grading import GradingPool
from jax_t2sql.text2sql import Completion, EpisodeConfig, Problem

GOLD = "SELECT COUNT(*) FROM book"


class Letters:
    """A codec in which every character is one id, and 0 ends a turn."""

    stop_ids = frozenset({0})
    opens_reasoning = False

    def encode_prompt(self, messages):
        return tuple(ord(c) for message in messages for c in message["content"])

    def encode_observation(self, text, *, last_id):
        return tuple(map(ord, text))

    def decode(self, ids):
        return "".join(chr(i) for i in ids if i)

    def stop_strings(self, style, tools=None):
        return ()


class Reader:
    """Right on every other answer where the prompt tells what is stored, else never; cut off on the
    question that it finds too long."""

    version = 0

    def __init__(self):
        self.calls = 0

    def generate(self, requests, *, stop_strings=()):
        done = []
        for request in requests:
            prompt = "".join(map(chr, request.prompt_ids))
            self.calls += 1
            told = "stored values: 'novel'" in prompt or "stored values" in prompt
            sql = GOLD if told and self.calls % 2 else "SELECT 0"
            ids = (*map(ord, f"```sql\n{sql}\n```"), 0)
            if "long" in prompt:
                ids = ids[: request.max_tokens]
                done.append(Completion(ids, (0.0,) * len(ids), "length", 0))
            else:
                done.append(Completion(ids, (0.0,) * len(ids), "stop_token", 0))
        return done


@pytest.fixture(scope="module")
def pool():
    with GradingPool(1) as pool:
        yield pool


def gate(library, live, pool, variants, questions, **options):
    problems = [
        Problem(question_id=str(i), db_id="library", question=text, gold_sql=GOLD, evidence="e")
        for i, text in enumerate(questions)
    ]
    return run_gate(
        problems,
        variants,
        policy=Reader(),
        codec=Letters(),
        episode=EpisodeConfig(style="direct", max_tokens_per_turn=60, max_context=20_000),
        databases=library,
        pool=pool,
        live=live,
        samples=4,
        **options,
    )


def test_variants_are_told_apart(library, live, pool, capsys):
    questions = ["How many books?", "Count them.", "A long one?"]
    bare, legend = gate(library, live, pool, ["bare", "legend"], questions)
    assert (bare.right, bare.mixed, bare.solved) == (0.0, 0.0, 0.0)
    assert legend.right == pytest.approx(4 / 12)
    assert legend.solved == legend.mixed == pytest.approx(2 / 3)
    assert bare.unfinished == legend.unfinished == pytest.approx(1 / 3)
    print_gate([bare])
    assert "no mixed group" in capsys.readouterr().out


def test_rows_by_database(library, live, pool):
    (row,) = gate(library, live, pool, ["evidence"], ["How many books?"], by_database=True)
    assert row.variant == "evidence library" and row.questions == 1 and row.samples == 4


def test_bad_variants_are_refused(library, live, pool):
    with pytest.raises(UserError, match="is unknown"):
        gate(library, live, pool, ["fancy"], ["x"])
    with pytest.raises(UserError, match="needs one database"):
        gate(library, None, pool, ["legend"], ["x"])
