"""What an episode is made of: its bounds, what is to be done next, how it ended, and its state."""

from dataclasses import dataclass
from typing import Literal

from jax_t2sql.text2sql.codec import Style
from jax_t2sql.text2sql.completion import ExpertRecord
from jax_t2sql.text2sql.problem import Problem
from jax_t2sql.text2sql.prompt_options import PLAIN, PromptOptions

NO_VERSION = -1  # of context tokens, which no weights sampled


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeConfig:
    """Bounds of an episode.

    Attributes:
      style: which protocol the prompt asked for. direct and question have one turn.
      max_turns: tool turns; one more turn is for the answer.
      max_tokens_per_turn: tokens sampled in a turn; a turn that reaches it is cut off.
      max_context: tokens of prompt, turns and observations together.
      max_result_rows, max_cell_chars: where an observation is cut.
      options: what the prompt says besides, and how calls are written.
    """

    style: Style = "tools"
    max_turns: int = 5
    max_tokens_per_turn: int = 1024
    max_context: int = 8192
    max_result_rows: int = 50
    max_cell_chars: int = 200
    options: PromptOptions = PLAIN


@dataclass(frozen=True, slots=True)
class Generate:
    """To do: sample one turn after `prompt_ids`, at most `max_tokens` (>= 1)."""

    prompt_ids: tuple[int, ...]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class RunSql:
    """To do: run this query on the problem's database."""

    sql: str


@dataclass(frozen=True, slots=True)
class Ending:
    """How an episode ended.

    Attributes:
      kind: answered (there is SQL to grade), contract_broken or cut_off.
      sql: the answer, where there is one.
      reason: a fixed phrase, so that reports can count.
    """

    kind: Literal["answered", "contract_broken", "cut_off"]
    sql: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn as a person reads it; training never looks at it.

    Attributes:
      kind: call, malformed, answer, broken or cut_off.
      text: what the model wrote.
      tokens: how many ids were sampled.
      stop: the completion's stop cause.
      sql: the query called or answered.
      status: how the query called ended.
      observation: what the model was told.
    """

    kind: Literal["call", "malformed", "answer", "broken", "cut_off"]
    text: str
    tokens: int
    stop: str
    sql: str | None = None
    status: str | None = None
    observation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeState:
    """An episode so far. The four token tuples have one length T at all times.

    Attributes:
      ids: prompt, sampled turns and observations in order.
      mask: True where the id was sampled.
      logprobs: the sampler's log-prob of a sampled id; 0.0 of context.
      versions: the version that sampled an id; NO_VERSION of context.
      prompt_length: how many ids the first prompt has.
      experts: of the first ids, as their first reader recorded them; None without a record.
      pending: what to do next; None when the episode has ended.
      ending: set when the episode has ended.
    """

    problem: Problem
    config: EpisodeConfig
    ids: tuple[int, ...]
    mask: tuple[bool, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    prompt_length: int
    experts: ExpertRecord | None = None
    turns: tuple[Turn, ...] = ()
    pending: Generate | RunSql | None = None
    ending: Ending | None = None

    @property
    def turns_left(self) -> int:
        """Tool turns that remain. Each turn so far used one."""
        return max(0, self.config.max_turns - len(self.turns))
