"""One question, several turns, one ending: the episode as a pure state machine.

`start` makes a state; whoever drives it looks at `state.pending`, samples or runs a query, and
feeds the result to `after_completion` or `after_sql`, which return the next state. Nothing here
waits, so a lock-step batch and an asyncio fleet drive the same code.

Token truth: sampled ids are appended as they came and never re-tokenised, so the ids of turn n are
a prefix of the prompt of turn n+1; `mask` is True exactly on sampled ids.
"""

from dataclasses import replace

from jax_t2sql.errors import UserError
from jax_t2sql.sql import Outcome
from jax_t2sql.text2sql import protocol
from jax_t2sql.text2sql.codec import Codec
from jax_t2sql.text2sql.completion import Completion
from jax_t2sql.text2sql.episode_state import (
    NO_VERSION,
    Ending,
    EpisodeConfig,
    EpisodeState,
    Generate,
    RunSql,
    Turn,
)
from jax_t2sql.text2sql.observation import describe_fault, describe_outcome
from jax_t2sql.text2sql.problem import Problem


class PromptTooLong(UserError):
    """A prompt leaves no room for an answer. Other questions may fit: leave this one out."""


def start(problem: Problem, prompt_ids: tuple[int, ...], config: EpisodeConfig) -> EpisodeState:
    """The state before the first turn.

    Raises:
      PromptTooLong: the prompt fills the context.
    """
    length = len(prompt_ids)
    if length >= config.max_context:
        raise PromptTooLong(
            f"question {problem.question_id} ({problem.db_id}): its prompt has {length} tokens and"
            f" max_context is {config.max_context}; raise max_context or leave the question out"
        )
    state = EpisodeState(
        problem=problem,
        config=config,
        ids=tuple(prompt_ids),
        mask=(False,) * length,
        logprobs=(0.0,) * length,
        versions=(NO_VERSION,) * length,
        prompt_length=length,
    )
    return _generate_next(state)


def after_completion(state: EpisodeState, completion: Completion, codec: Codec) -> EpisodeState:
    """Takes a sampled turn: ends the episode, asks for a query to be run, or replies.

    A turn that met a token limit is cut off, whatever its text: a call in it is not run and a
    solution in it is not an answer.
    """
    request = state.pending
    if not isinstance(request, Generate):
        raise ValueError(f"a completion arrived while the episode waits for {_name(request)}")
    if len(completion.ids) > request.max_tokens:
        raise ValueError(
            f"a completion has {len(completion.ids)} tokens, {request.max_tokens} were allowed:"
            " the sampler ignores max_tokens"
        )
    turns_left, style, tools = state.turns_left, state.config.style, state.config.options.tools
    state = _append_sampled(state, completion)
    text = codec.decode(completion.ids)

    def turn(kind, **fields) -> tuple[Turn, ...]:
        tokens, stop = len(completion.ids), completion.stop
        return (*state.turns, Turn(kind=kind, text=text, tokens=tokens, stop=stop, **fields))

    def end(kind, turn_kind, reason: str, sql: str | None = None) -> EpisodeState:
        ending = Ending(kind, sql, reason)
        return replace(state, turns=turn(turn_kind, sql=sql), pending=None, ending=ending)

    if _is_cut_off(completion, request, text, codec, state.config):
        return end("cut_off", "cut_off", "token limit of the turn")
    match protocol.parse(text, style, inside_reasoning=codec.opens_reasoning, tools=tools):
        case protocol.Answer(sql):
            return end("answered", "answer", "solution", sql)
        case protocol.Broken(reason):
            return end("contract_broken", "broken", reason)
        case protocol.Call() if not turns_left:
            return end("contract_broken", "broken", "call after the last turn")
        case protocol.Call(sql):
            return replace(state, turns=turn("call", sql=sql), pending=RunSql(sql))
        case protocol.Malformed() if not turns_left:
            return end("contract_broken", "malformed", "no answer within the turn budget")
        case protocol.Malformed(fault):
            observation = describe_fault(fault, turns_left=turns_left - 1, tools=tools)
            state = replace(state, turns=turn("malformed", observation=observation))
            return _append_observation(state, observation, codec)


def as_if_ended(state: EpisodeState, codec: Codec) -> EpisodeState:
    """An ended episode whose cut-off last turn is read as if the model had stopped there.

    For comparison with graders that do so. Where that makes no answer, the state is as it was.
    """
    if state.ending is None or state.ending.kind != "cut_off" or not state.turns:
        return state
    parsed = protocol.parse(
        state.turns[-1].text,
        state.config.style,
        inside_reasoning=codec.opens_reasoning,
        tools=state.config.options.tools,
    )
    if not isinstance(parsed, protocol.Answer):
        return state
    return replace(state, ending=Ending("answered", parsed.sql, "cut off, read as an answer"))


def after_sql(state: EpisodeState, outcome: Outcome, codec: Codec) -> EpisodeState:
    """Takes a query's outcome: tells the model and asks for the next turn."""
    if not isinstance(state.pending, RunSql):
        raise ValueError(f"an outcome arrived while the episode waits for {_name(state.pending)}")
    observation = describe_outcome(
        outcome,
        turns_left=state.turns_left,
        max_rows=state.config.max_result_rows,
        max_cell_chars=state.config.max_cell_chars,
    )
    told = replace(state.turns[-1], status=outcome.status, observation=observation)
    return _append_observation(replace(state, turns=(*state.turns[:-1], told)), observation, codec)


def _name(pending: Generate | RunSql | None) -> str:
    return "nothing: it has ended" if pending is None else type(pending).__name__


def _is_cut_off(
    completion: Completion, request: Generate, text: str, codec: Codec, config: EpisodeConfig
) -> bool:
    """True if the turn met its token limit, by its stop cause or by its ids.

    Servers have been seen to report a parsed tool call in place of the length stop, so a full
    count is believed to be a proper end only if the ids show one.
    """
    if completion.stop == "length":
        return True
    if len(completion.ids) < request.max_tokens:
        return False
    if completion.ids[-1] in codec.stop_ids:
        return False
    stops = codec.stop_strings(config.style, config.options.tools)
    return not any(stop in text for stop in stops)


def _append_sampled(state: EpisodeState, completion: Completion) -> EpisodeState:
    count, experts = len(completion.ids), completion.experts
    if state.turns:
        # A gap would shift what follows: after a turn without a record there is none.
        known = state.experts is not None and experts is not None
        experts = state.experts.then(experts) if known else state.experts
    return replace(
        state,
        experts=experts,
        ids=state.ids + tuple(completion.ids),
        mask=state.mask + (True,) * count,
        logprobs=state.logprobs + tuple(completion.logprobs),
        versions=state.versions + (completion.version,) * count,
    )


def _append_observation(state: EpisodeState, text: str, codec: Codec) -> EpisodeState:
    ids = codec.encode_observation(text, last_id=state.ids[-1])
    count = len(ids)
    if len(state.ids) + count >= state.config.max_context:
        # The observation is left out: ids never outgrow the context.
        return replace(state, pending=None, ending=Ending("cut_off", None, "context is full"))
    state = replace(
        state,
        ids=state.ids + tuple(ids),
        mask=state.mask + (False,) * count,
        logprobs=state.logprobs + (0.0,) * count,
        versions=state.versions + (NO_VERSION,) * count,
    )
    return _generate_next(state)


def _generate_next(state: EpisodeState) -> EpisodeState:
    room = state.config.max_context - len(state.ids)
    limit = min(state.config.max_tokens_per_turn, room)
    return replace(state, pending=Generate(state.ids, limit))
