"""Prompts of a run's questions as token ids, fitted into the context."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jax_t2sql.errors import UserError
from jax_t2sql.sql import resolve_database
from jax_t2sql.text2sql import Codec, EpisodeConfig, Problem, build_messages
from jax_t2sql.text2sql.codec import Message
from jax_t2sql.text2sql.prompts import prompt_doc
from jax_t2sql.text2sql.schema_budget import fit_schema
from jax_t2sql.text2sql.schema_doc import SchemaDoc
from jax_t2sql.text2sql.schema_text import print_schema

# Prompts held at a time where tasks change them.
_KEPT_PROMPTS = 10_000


@dataclass(frozen=True, slots=True)
class _Schema:
    """A database's whole schema, as text too, and the length of that."""

    doc: SchemaDoc
    text: str
    tokens: int


class PromptBuilder:
    """Prompts as token ids; schemas are read once a database, prompts made once a question.

    A schema that leaves no room for an answer, or is over its own limit, loses the columns that
    matter least for the question.

    Args:
      databases: folder of databases, or one file.
      codec: turns messages into ids.
      episode: style and bounds.
      schema_tokens: most tokens of a schema; None: what the context leaves.
      notes: gives what is said of a database after its schema; see `read_notes`.
      find: gives the place of a database in the folder.
      read: gives the schema that is there; by default what the style tells of a SQLite file.
    """

    def __init__(
        self,
        databases: Path,
        codec: Codec,
        episode: EpisodeConfig,
        *,
        schema_tokens: int | None = None,
        notes: Callable[[str], str] = lambda db_id: "",
        find: Callable[[Path, str], Path] = resolve_database,
        read: Callable[[Path], SchemaDoc] | None = None,
    ):
        self.databases, self.codec, self.episode = databases, codec, episode
        self._schema_tokens, self._notes = schema_tokens, notes
        self._find = find
        self._read = read or (lambda path: prompt_doc(path, style=episode.style))
        self._schemas: dict[str, _Schema | None] = {}
        self._ids: dict[Problem, tuple[int, ...]] = {}
        self._cut: dict[Problem, str] = {}
        self._fitted: dict[Problem, str] = {}

    def path(self, problem: Problem) -> Path:
        """The problem's database. Raises UserError if there is none."""
        return self._find(self.databases, problem.db_id)

    @property
    def room(self) -> int:
        """Most tokens of a prompt."""
        return self.episode.max_context - self.episode.max_tokens_per_turn

    @property
    def cut_schemas(self) -> list[tuple[Problem, str]]:
        """Questions so far whose schema is not shown whole, with how much of it is."""
        return list(self._cut.items())

    def ids(self, problem: Problem) -> tuple[int, ...]:
        """Token ids of the problem's prompt."""
        if problem.given != "own" and len(self._ids) > _KEPT_PROMPTS:
            # There are as many such prompts as tasks.
            self._ids.clear()
            self._fitted.clear()
        if problem not in self._ids:
            if problem.db_id not in self._schemas:
                self._schemas[problem.db_id] = self._read_schema(problem)
            self._ids[problem] = self._encode_fitting(problem, self._schemas[problem.db_id])
        return self._ids[problem]

    def messages(self, problem: Problem) -> list[Message]:
        """The problem's prompt as messages, with as much of the schema as `ids` has."""
        self.ids(problem)
        whole = self._schemas[problem.db_id]
        return self._messages(problem, self._fitted.get(problem) or (whole and whole.text))

    def _read_schema(self, problem: Problem) -> "_Schema | None":
        if self.episode.style == "question":
            return None
        doc = self._read(self.path(problem))
        text = print_schema(doc, dialect=self.episode.options.dialect)
        return _Schema(doc, text, self._count(text))

    def _messages(self, problem: Problem, schema: str | None) -> list[Message]:
        if schema is not None and (notes := self._notes(problem.db_id)):
            schema = f"{schema}\n\nAbout this database:\n{notes}"
        return build_messages(
            problem,
            schema,
            style=self.episode.style,
            max_turns=self.episode.max_turns,
            options=self.episode.options,
        )

    def _encode(self, problem: Problem, schema: str | None) -> tuple[int, ...]:
        return self.codec.encode_prompt(self._messages(problem, schema))

    def _encode_fitting(self, problem: Problem, schema: "_Schema | None") -> tuple[int, ...]:
        if schema is None:
            return self._encode(problem, None)
        limit = self._schema_tokens or schema.tokens
        ids = self._encode(problem, schema.text)
        if len(ids) <= self.room and schema.tokens <= limit:
            return ids
        budget = min(limit, schema.tokens - max(0, len(ids) - self.room))
        about = f"{problem.question} {problem.evidence}"
        # Twice, since the words at the seams may be split into other tokens than were counted.
        for _ in range(2):
            shown = fit_schema(
                schema.doc,
                budget=budget,
                count=self._count,
                about=about,
                dialect=self.episode.options.dialect,
            )
            ids = self._encode(problem, shown.text)
            if len(ids) <= self.room:
                break
            budget -= len(ids) - self.room
        self._fitted[problem] = shown.text
        tables = f", {len(shown.tables_left_out)} tables left out" * bool(shown.tables_left_out)
        if problem.given == "own":
            self._cut[problem] = f"{shown.columns} of {shown.all} columns shown{tables}"
        return ids

    def _count(self, text: str) -> int:
        return len(self.codec.encode_prompt([{"role": "user", "content": text}]))

    def split_by_length(
        self, problems: Sequence[Problem]
    ) -> tuple[list[Problem], list[tuple[Problem, str]]]:
        """Problems that leave room for an answer, and those that do not with the reason."""
        fitting, too_long = [], []
        for problem in problems:
            length = len(self.ids(problem))
            if length <= self.room:
                fitting.append(problem)
            else:
                too_long.append(
                    (
                        problem,
                        f"prompt of {length} tokens; with {self.episode.max_tokens_per_turn} to"
                        f" answer it is over the context of {self.episode.max_context}",
                    )
                )
        return fitting, too_long


def check_prompts(
    problems: Sequence[Problem], prompts: PromptBuilder
) -> tuple[list[Problem], list[tuple[Problem, str]]]:
    """Like `PromptBuilder.split_by_length`, but raises UserError if nothing fits."""
    fitting, too_long = prompts.split_by_length(problems)
    if not fitting and too_long:
        problem, reason = too_long[0]
        raise UserError(
            f"no question fits the context; the first, {problem.question_id} ({problem.db_id}):"
            f" {reason}. Raise --prompt.max-context if the model allows it, or lower"
            " --prompt.max-tokens"
        )
    return fitting, too_long
