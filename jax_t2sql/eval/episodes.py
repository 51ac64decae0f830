"""Finished episodes as rows of an evaluation."""

from jax_t2sql.eval.tasks import Task
from jax_t2sql.scores.records import AnswerRow, Ending, Message
from jax_t2sql.text2sql import EpisodeState
from jax_t2sql.text2sql.episode_state import Turn


def answer_row(task: Task, state: EpisodeState, *, seconds: float) -> AnswerRow:
    """The answer of an episode that has ended. Every turn reads all that came before it."""
    sampled = [turn.tokens for turn in state.turns]
    prompts = _prompt_lengths(state)
    ending: Ending = state.ending.kind if state.ending.kind != "answered" else "answer"
    sql = state.ending.sql
    if ending == "answer" and not (sql or "").strip():
        ending, sql = "no_query", None
    return AnswerRow(
        question_id=task.row.question_id,
        candidate=task.candidate,
        decoding="greedy" if task.greedy else "sample",
        ending=ending,
        sql=sql,
        evidence=task.evidence,
        prompt_tokens=sum(prompts),
        completion_tokens=sum(sampled),
        cached_tokens=sum(prompts[:-1]) + sum(sampled[:-1]) if len(prompts) > 1 else 0,
        turns=len(state.turns),
        seconds=round(seconds, 3),
        error="" if ending == "answer" else state.ending.reason,
        messages=messages_of(state.turns),
    )


def unanswered(task: Task, ending: Ending, reason: str) -> AnswerRow:
    """A row without a query."""
    return AnswerRow(
        question_id=task.row.question_id,
        candidate=task.candidate,
        decoding="greedy" if task.greedy else "sample",
        ending=ending,
        evidence=task.evidence,
        error=reason,
    )


def messages_of(turns: tuple[Turn, ...]) -> tuple[Message, ...]:
    """What was said after the prompt, which the question tells already."""
    messages = []
    for turn in turns:
        messages.append(Message("assistant", turn.text))
        if turn.observation is not None:
            messages.append(Message("tool", turn.observation))
    return tuple(messages)


def _prompt_lengths(state: EpisodeState) -> list[int]:
    """How many ids stood before each turn: the mask changes where a turn begins."""
    starts = []
    for place in range(1, len(state.mask)):
        if state.mask[place] and not state.mask[place - 1]:
            starts.append(place)
    return starts
