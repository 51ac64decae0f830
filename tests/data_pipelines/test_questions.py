import json
import subprocess
import sys

import pytest

from data_pipelines.questions import QuestionStream
from jax_t2sql.errors import UserError
from jax_t2sql.text2sql import Problem


def problems(count, text="Q"):
    return [
        Problem(question_id=str(i), db_id="d", question=f"{text}{i}", gold_sql="SELECT 1")
        for i in range(count)
    ]


def draw(stream, count):
    return [stream.next().question_id for _ in range(count)]


def test_each_epoch_draws_every_question_once_in_a_new_order():
    stream = QuestionStream(problems(20), seed=3)
    epochs = [draw(stream, 20) for _ in range(4)]
    assert all(sorted(epoch, key=int) == [str(i) for i in range(20)] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert stream.epoch == 4


def test_the_seed_decides_the_order():
    first, same, other = (draw(QuestionStream(problems(20), seed=s), 40) for s in (3, 3, 4))
    assert first == same != other


def test_without_shuffle_the_order_is_kept():
    assert draw(QuestionStream(problems(3), seed=0, shuffle=False), 7) == list("0120120")


@pytest.mark.parametrize("drawn", [0, 1, 7, 30])
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_restored_stream_goes_on_with_the_next_question(drawn, shuffle):
    stream = QuestionStream(problems(7), seed=5, shuffle=shuffle)
    draw(stream, drawn)
    state = json.loads(json.dumps(stream.state()))
    expected = draw(stream, 20)
    fresh = QuestionStream(problems(7), seed=5, shuffle=shuffle)
    draw(fresh, 2)
    fresh.restore(state)
    assert draw(fresh, 20) == expected
    assert fresh.state() == stream.state()


@pytest.mark.parametrize(
    ("other", "word"),
    [
        (QuestionStream(problems(7), seed=6), "seed=5"),
        (QuestionStream(problems(7), seed=5, shuffle=False), "shuffle=True"),
        (QuestionStream(problems(8), seed=5), "questions"),
        (QuestionStream(problems(7, text="R"), seed=5), "questions"),
    ],
)
def test_a_state_of_another_run_is_refused(other, word):
    state = QuestionStream(problems(7), seed=5).state()
    before = other.state()
    with pytest.raises(UserError, match=word):
        other.restore(state)
    assert other.state() == before


@pytest.mark.parametrize("position", [-1, "3", None])
def test_a_nonsensical_position_is_refused(position):
    stream = QuestionStream(problems(7), seed=5)
    with pytest.raises(UserError, match="position"):
        stream.restore(stream.state() | {"position": position})


def test_no_questions_are_refused():
    with pytest.raises(UserError, match="no questions"):
        QuestionStream([], seed=0)


def test_the_module_imports_without_grain():
    code = "import sys, data_pipelines.questions; sys.exit('grain' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
