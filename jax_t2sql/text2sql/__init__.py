"""From a question over a database to a finished episode.

Problems and their files, the schema as text within a token budget, prompts in three styles, the
tool protocol, evidence blocks, and the multi-turn episode as a pure state machine over token ids.
Knows no sampler and no array library: a `Codec` and `Completion`s are all it sees of a model.
"""

from jax_t2sql.text2sql.codec import Codec, Message, Style
from jax_t2sql.text2sql.completion import Completion, ExpertRecord
from jax_t2sql.text2sql.episode import (
    PromptTooLong,
    after_completion,
    after_sql,
    as_if_ended,
    start,
)
from jax_t2sql.text2sql.episode_state import (
    NO_VERSION,
    Ending,
    EpisodeConfig,
    EpisodeState,
    Generate,
    RunSql,
    Turn,
)
from jax_t2sql.text2sql.evidence import Compliance, check_evidence, evidence_pieces
from jax_t2sql.text2sql.problem import Problem, load_problems
from jax_t2sql.text2sql.prompt_options import PromptOptions
from jax_t2sql.text2sql.prompts import build_messages, prompt_schema
from jax_t2sql.text2sql.schema_text import schema_text

__all__ = [
    "NO_VERSION",
    "Codec",
    "Completion",
    "Compliance",
    "Ending",
    "EpisodeConfig",
    "EpisodeState",
    "ExpertRecord",
    "Generate",
    "Message",
    "Problem",
    "PromptOptions",
    "PromptTooLong",
    "RunSql",
    "Style",
    "Turn",
    "after_completion",
    "after_sql",
    "as_if_ended",
    "build_messages",
    "check_evidence",
    "evidence_pieces",
    "load_problems",
    "prompt_schema",
    "schema_text",
    "start",
]
