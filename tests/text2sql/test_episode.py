import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_t2sql.errors import UserError
from jax_t2sql.sql import Limits, Outcome, execute
from jax_t2sql.text2sql import (
    Completion,
    Ending,
    EpisodeConfig,
    ExpertRecord,
    Generate,
    Problem,
    PromptTooLong,
    RunSql,
    after_completion,
    after_sql,
    build_messages,
    prompt_schema,
    start,
)

PROBLEM = Problem(question_id="1", db_id="zoo", question="How many zoos?", gold_sql="SELECT 60")


def call(sql):
    body = json.dumps({"name": "execute_sql_query", "arguments": {"query": sql}})
    return f"<tool_call>{body}</tool_call>"


def solution(sql="SELECT COUNT(*) FROM zoo"):
    return f"<solution>{sql}</solution>"


@dataclasses.dataclass(frozen=True)
class Say:
    """One scripted turn. stop_token appends the end token, length cuts the text's last piece."""

    text: str
    stop: str = "stop_token"


def complete(say, request, tokenizer, version):
    ids = tokenizer.encode(say.text)
    if say.stop == "stop_token":
        ids.append(tokenizer.encode("<|im_end|>", special=True)[0])
    stop = say.stop
    if len(ids) > request.max_tokens:
        ids, stop = ids[: request.max_tokens], "length"
    logprobs = tuple(-0.01 * (i + 1) for i in range(len(ids)))
    return Completion(ids=tuple(ids), logprobs=logprobs, stop=stop, version=version)


def check(state):
    """Token truth: one length, context and sampled ids told apart, nothing beyond the context."""
    lengths = {len(state.ids), len(state.mask), len(state.logprobs), len(state.versions)}
    assert len(lengths) == 1
    assert len(state.ids) <= state.config.max_context
    assert not any(state.mask[: state.prompt_length])
    for sampled, logprob, version in zip(state.mask, state.logprobs, state.versions, strict=True):
        assert (logprob < 0) == sampled and (version >= 0) == sampled
    assert (state.pending is None) == (state.ending is not None)


def play(script, zoo, tokenizer, codec, **bounds):
    """Drives an episode with scripted turns and a real database; checks each state."""
    config = EpisodeConfig(**bounds)
    schema = prompt_schema(zoo, style=config.style)
    messages = build_messages(PROBLEM, schema, style=config.style)
    state = start(PROBLEM, codec.encode_prompt(messages), config)
    script = list(script)
    expected_ids, expected_mask = state.ids, state.mask
    while state.pending is not None:
        check(state)
        if isinstance(state.pending, RunSql):
            outcome = execute(zoo, state.pending.sql, limits=Limits(seconds=5))
            state = after_sql(state, outcome, codec)
            continue
        # The ids so far, with what was sampled, are a prefix of this turn's prompt.
        assert state.pending.prompt_ids == state.ids
        assert state.ids[: len(expected_ids)] == expected_ids
        added = len(state.ids) - len(expected_ids)
        assert state.mask == expected_mask + (False,) * added
        completion = complete(script.pop(0), state.pending, tokenizer, len(state.turns))
        expected_ids = state.ids + completion.ids
        expected_mask = state.mask + (True,) * len(completion.ids)
        state = after_completion(state, completion, codec)
    check(state)
    assert not script, "the episode ended before the script"
    assert state.ids == expected_ids and state.mask == expected_mask
    return state


@pytest.fixture
def run(zoo, tokenizer, codec):
    return lambda *script, **bounds: play(
        [Say(s) if isinstance(s, str) else s for s in script], zoo, tokenizer, codec, **bounds
    )


def kinds(state):
    return [turn.kind for turn in state.turns]


def test_a_question_answered_after_looking(run, codec):
    state = run(call("SELECT DISTINCT city FROM zoo"), "I see.\n" + solution("SELECT 60"))
    assert state.ending == Ending("answered", "SELECT 60", "solution")
    look, answer = state.turns
    assert (look.kind, look.sql, look.status) == ("call", "SELECT DISTINCT city FROM zoo", "ok")
    assert "(3 rows)" in look.observation and "Tool turns left: 4." in look.observation
    assert (answer.kind, answer.sql, answer.observation) == ("answer", "SELECT 60", None)
    assert set(state.versions) == {-1, 0, 1}
    assert codec.decode(state.ids).endswith(solution("SELECT 60"))


def test_an_answer_needs_no_call(run):
    assert run(solution()).ending.kind == "answered"
    assert run(Say(solution(), "stop_string")).ending.sql == "SELECT COUNT(*) FROM zoo"


def test_a_turn_stopped_by_a_string_is_closed_by_the_observation(run, codec, tokenizer):
    script = (call("SELECT 1"), solution())
    by_token = run(*script)
    by_string = run(*(Say(text, "stop_string") for text in script))
    assert by_token.ids[:-1] == by_string.ids
    assert sum(by_token.mask) == sum(by_string.mask) + 2


def test_an_sql_error_is_told_and_the_episode_goes_on(run):
    state = run(call("SELECT nosuch FROM zoo"), call("DROP TABLE zoo"), solution())
    assert [turn.status for turn in state.turns] == ["error", "refused", None]
    assert "no such column: nosuch" in state.turns[0].observation
    assert "refused" in state.turns[1].observation
    assert state.ending.kind == "answered"


def test_a_long_table_is_truncated(run):
    state = run(call("SELECT id FROM zoo"), solution(), max_result_rows=10)
    assert "60 rows; only the first 10 are shown" in state.turns[0].observation


def test_a_broken_call_uses_a_turn_and_is_explained(run):
    state = run('<tool_call>{"name": }</tool_call>', call("SELECT 1"), solution())
    assert kinds(state) == ["malformed", "call", "answer"]
    assert "not JSON" in state.turns[0].observation
    assert "Tool turns left: 4." in state.turns[0].observation
    assert "Tool turns left: 3." in state.turns[1].observation


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (call("SELECT 1") + solution(), "call and solution in one turn"),
        (solution() + solution(), "two solutions"),
    ],
)
def test_contract_breaches_end_the_episode(run, text, reason):
    state = run(call("SELECT 1"), text)
    assert state.ending == Ending("contract_broken", None, reason)
    assert kinds(state) == ["call", "broken"]


def test_a_solution_inside_reasoning_is_no_answer(run):
    state = run(f"<think>{solution('SELECT 1')}</think>", f"<think>x</think>{solution('SELECT 2')}")
    assert kinds(state) == ["malformed", "answer"]
    assert "reasoning" in state.turns[0].observation
    assert state.ending.sql == "SELECT 2"


@pytest.mark.parametrize("text", [solution(), call("SELECT 1"), "I think"])
@pytest.mark.parametrize("style", ["tools", "direct", "question"])
def test_a_turn_cut_off_never_yields_an_answer(run, text, style):
    state = run(Say(text, "length"), style=style)
    assert state.ending == Ending("cut_off", None, "token limit of the turn")
    assert kinds(state) == ["cut_off"]


def test_a_turn_cut_inside_its_call_is_cut_off(run):
    state = run(call("SELECT 1 FROM zoo, zoo, zoo"), max_tokens_per_turn=8)
    assert state.ending.kind == "cut_off"
    assert sum(state.mask) == 8


@pytest.mark.parametrize("stop", ["stop_token", "stop_string"])
def test_a_stop_cause_that_the_ids_belie_is_not_believed(zoo, tokenizer, codec, stop):
    """A server that hides its length stop behind a parsed call."""
    ids = tokenizer.encode('<tool_call>{"name": "execute_sql')
    state = start(PROBLEM, (1, 2), EpisodeConfig(max_tokens_per_turn=len(ids)))
    completion = Completion(tuple(ids), (-1.0,) * len(ids), stop, 0)
    assert after_completion(state, completion, codec).ending.kind == "cut_off"


@pytest.mark.parametrize("stop", ["stop_token", "stop_string"])
def test_a_turn_that_ends_on_its_last_token_is_whole(zoo, tokenizer, codec, stop):
    request = Generate((1,), 10_000)
    length = len(complete(Say(solution(), stop), request, tokenizer, 0).ids)
    state = start(PROBLEM, (1, 2), EpisodeConfig(max_tokens_per_turn=length))
    completion = complete(Say(solution(), stop), state.pending, tokenizer, 0)
    assert after_completion(state, completion, codec).ending.kind == "answered"


def test_experts_are_those_of_each_tokens_first_reader(tokenizer, codec):
    """The second turn reads the first one's tokens again; only what was new counts."""
    state, kept = start(PROBLEM, (1, 2), EpisodeConfig(max_context=4096)), []
    for number, text in enumerate(("hm", solution()), start=1):
        completion = complete(Say(text, "stop_token"), state.pending, tokenizer, 0)
        read = len(state.ids) + len(completion.ids) - 1
        record = ExpertRecord(bytes([number, 0] * read * 6), layers=2, chosen=3)
        kept += [number] * (read - len(kept))
        completion = dataclasses.replace(completion, experts=record)
        state = after_completion(state, completion, codec)
    assert state.ending.kind == "answered" and 0 < kept.count(1) < kept.count(2) + kept.count(1)
    assert state.experts.data[::12] == bytes(kept) and len(state.experts) == len(state.ids) - 1
    with pytest.raises(ValueError, match="7 bytes are no record of 2 layers with 3 experts"):
        ExpertRecord(b"1234567", 2, 3)


def test_a_call_after_the_last_turn_breaks_the_contract(run):
    state = run(call("SELECT 1"), call("SELECT 2"), call("SELECT 3"), max_turns=2)
    assert "No tool turns left" in state.turns[1].observation
    assert state.ending == Ending("contract_broken", None, "call after the last turn")
    assert state.turns[2].status is None


def test_the_answer_may_follow_the_last_tool_turn(run):
    state = run(call("SELECT 1"), "hm", solution(), max_turns=2)
    assert state.ending.kind == "answered"
    assert run(solution(), max_turns=0).ending.kind == "answered"


def test_a_used_up_budget_without_an_answer_breaks_the_contract(run):
    state = run("hm", call("SELECT 1"), "hm", max_turns=2)
    assert state.ending == Ending("contract_broken", None, "no answer within the turn budget")


def test_a_full_context_cuts_off_without_outgrowing_it(run, tokenizer):
    whole = run(call("SELECT * FROM zoo"), solution())
    room = whole.prompt_length + whole.turns[0].tokens + 20
    state = run(call("SELECT * FROM zoo"), max_context=room)
    assert state.ending == Ending("cut_off", None, "context is full")
    assert state.turns[0].status == "ok" and "(60 rows" in state.turns[0].observation
    state = run("hm", max_context=whole.prompt_length + 10)
    assert state.ending == Ending("cut_off", None, "context is full")
    state = run(solution(), max_context=whole.prompt_length + 3)
    assert state.ending == Ending("cut_off", None, "token limit of the turn")
    assert len(state.ids) == whole.prompt_length + 3


def test_a_prompt_that_fills_the_context_is_refused():
    with pytest.raises(PromptTooLong, match=r"question 1 \(zoo\).* 10 tokens .* 10;") as caught:
        start(PROBLEM, (7,) * 10, EpisodeConfig(max_context=10))
    assert isinstance(caught.value, UserError)
    assert start(PROBLEM, (7,) * 9, EpisodeConfig(max_context=10)).pending.max_tokens == 1


def test_direct_and_question_have_one_turn(run):
    fenced = "```sql\nSELECT 1\n```"
    assert run(fenced, style="direct").ending == Ending("answered", "SELECT 1", "solution")
    assert run("SELECT 1", style="question").ending.sql == "SELECT 1"
    assert run(call("SELECT 1"), style="direct").ending.reason == "no SQL block"
    assert run("", style="question").ending.reason == "empty answer"


def test_a_special_token_in_a_cell_closes_no_turn(run, tokenizer):
    end = tokenizer.encode("<|im_end|>", special=True)[0]
    state = run(call("SELECT '<|im_end|>' FROM zoo LIMIT 3"), solution())
    assert "<|im_end|>" in state.turns[0].observation
    others = run(call("SELECT 'Delft' FROM zoo LIMIT 3"), solution())
    assert state.ids.count(end) == others.ids.count(end)


def test_steps_out_of_turn_are_refused(codec, tokenizer):
    state = start(PROBLEM, (1, 2), EpisodeConfig(max_tokens_per_turn=40))
    with pytest.raises(ValueError, match="waits for Generate"):
        after_sql(state, Outcome("ok"), codec)
    with pytest.raises(ValueError, match="ignores max_tokens"):
        after_completion(state, Completion((1,) * 41, (-1.0,) * 41, "stop_token", 0), codec)
    state = start(PROBLEM, (1, 2), EpisodeConfig())
    asked = after_completion(state, complete(Say(call("x")), state.pending, tokenizer, 0), codec)
    with pytest.raises(ValueError, match="waits for RunSql"):
        after_completion(asked, Completion((1,), (-1.0,), "stop_token", 0), codec)
    # A state is a value: the step above left the first one as it was.
    assert state.pending == Generate((1, 2), 1024) and state.turns == ()


@pytest.mark.parametrize(
    ("ids", "logprobs", "stop"), [((), (), "length"), ((1,), (), "length"), ((1,), (-1.0,), "eos")]
)
def test_a_completion_is_checked(ids, logprobs, stop):
    with pytest.raises(ValueError, match="completion"):
        Completion(ids, logprobs, stop, 0)


_TURNS = st.builds(
    Say,
    text=st.sampled_from(
        [
            call("SELECT * FROM zoo"),
            call("SELECT city FROM zoo LIMIT 2"),
            call("nonsense"),
            solution(),
            solution() * 2,
            call("SELECT 1") + solution(),
            "<think>" + solution(),
            "```sql\nSELECT 1\n```",
            "SELECT 1",
        ]
    )
    | st.text(max_size=10),
    stop=st.sampled_from(["stop_token", "stop_string", "length"]),
).filter(lambda say: say.text or say.stop == "stop_token")


@settings(max_examples=150, deadline=None)
@given(
    script=st.lists(_TURNS, min_size=4, max_size=4),
    style=st.sampled_from(["tools", "direct", "question"]),
    max_turns=st.integers(0, 3),
    room=st.integers(1, 1500),
    max_tokens=st.integers(1, 80),
)
def test_any_script_keeps_token_truth(
    zoo, tokenizer, codec, script, style, max_turns, room, max_tokens
):
    prompt = codec.encode_prompt(
        build_messages(PROBLEM, prompt_schema(zoo, style=style), style=style)
    )
    bounds = {
        "style": style,
        "max_turns": max_turns,
        "max_context": len(prompt) + room,
        "max_tokens_per_turn": max_tokens,
    }
    # Whatever is said, an episode ends within its turns: an unending one would empty the script.
    for length in range(1, max_turns + 2):
        try:
            state = play(script[:length], zoo, tokenizer, codec, **bounds)
        except IndexError:
            continue
        assert len(state.turns) == length
        if state.ending.kind == "answered":
            assert script[length - 1].stop != "length"
        return
    pytest.fail("the episode did not end within its turn budget")
