import json
import subprocess
import sys

import pytest

from data_pipelines.questions import QuestionStream
from jax_t2sql.errors import UserError
from jax_t2sql.text2sql import Problem


def problems(count, text="Q", source=""):
    return [
        Problem(
            question_id=f"{source}{i}",
            db_id="d",
            question=f"{text}{i}",
            gold_sql="SELECT 1",
            source=source,
        )
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
        (QuestionStream(problems(7), seed=5, shares={"": 1.0}), "shares"),
        (QuestionStream(problems(7, text="R"), seed=5), "questions"),
    ],
)
def test_a_state_of_another_run_is_refused(other, word):
    state = QuestionStream(problems(7), seed=5).state()
    before = other.state()
    with pytest.raises(UserError, match=word):
        other.restore(state)
    assert other.state() == before


MIXED = problems(20) + problems(4, source="b") + problems(2, source="c")
SHARES = {"b": 0.5, "c": 0.2}


def test_shares_decide_what_is_drawn():
    ids = draw(QuestionStream(MIXED, seed=1, shares=SHARES), 1000)
    count = {letter: sum(i.startswith(letter) for i in ids) for letter in "bc"}
    assert count == {"b": 500, "c": 200}
    # Each part goes through epochs of its own, the others as one part.
    assert sorted(i for i in ids if i[0] == "b")[:125] == ["b0"] * 125
    rest = [i for i in ids if i.isdigit()]
    assert sorted(rest[:20], key=int) == [str(i) for i in range(20)] != rest[:20]
    # Not in blocks.
    assert len({i[:1] for i in ids[:10]} & {"b", "c"}) == 2


@pytest.mark.parametrize(
    ("shares", "word"),
    [
        ({"b": 0.7, "c": 0.3}, "leave room"),
        ({"b": -0.1}, "above 0"),
        ({"b": 1.2}, "leave room"),
        ({"d": 0.1}, "no question is left of d"),
    ],
)
def test_shares_that_cannot_be(shares, word):
    with pytest.raises(UserError, match=word):
        QuestionStream(MIXED, seed=1, shares=shares)


@pytest.mark.parametrize("shares", [{}, SHARES])
@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("after", [1, 2, 5])
def test_shards_together_draw_what_one_reader_draws_and_can_be_shared_out_anew(
    shares, before, after
):
    def shards(count, state=None):
        streams = [
            QuestionStream(MIXED, seed=3, shares=shares, shard=(i, count)) for i in range(count)
        ]
        for stream in streams if state else ():
            stream.restore(state)
        return streams

    whole = draw(QuestionStream(MIXED, seed=3, shares=shares), 12 + 30)
    first = shards(before)
    got = [stream.next().question_id for _ in range(12 // before) for stream in first]
    states = [json.loads(json.dumps(stream.state())) for stream in first]
    assert all(state == states[0] for state in states)
    second = shards(after, states[0])
    got += [stream.next().question_id for _ in range(30 // after) for stream in second]
    assert got == whole


def test_a_shard_beyond_the_count_is_refused():
    with pytest.raises(ValueError, match="shard"):
        QuestionStream(MIXED, seed=1, shard=(2, 2))


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
