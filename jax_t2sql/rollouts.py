"""Episodes of many questions at once, sampled in lock step, run and graded in the SQL pool.

The in-process sampler is fastest with everything in one batch, so all episodes take a turn
together: one `Policy.generate` for every turn due, then every query due in the pool.
"""

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jax_t2sql.errors import UserError
from jax_t2sql.grading import (
    EquivalenceRule,
    GradeJob,
    GradingPool,
    Reward,
    RewardRule,
    Verdict,
    reward,
)
from jax_t2sql.sampling.policy import Policy, SampleRequest
from jax_t2sql.sql import resolve_database
from jax_t2sql.text2sql import (
    Codec,
    EpisodeConfig,
    EpisodeState,
    Generate,
    Problem,
    RunSql,
    after_completion,
    after_sql,
    build_messages,
    check_evidence,
    start,
)
from jax_t2sql.text2sql.codec import Message
from jax_t2sql.text2sql.prompts import prompt_doc
from jax_t2sql.text2sql.schema_budget import fit_schema
from jax_t2sql.text2sql.schema_doc import SchemaDoc
from jax_t2sql.text2sql.schema_text import print_schema


@dataclass(frozen=True, slots=True)
class _Schema:
    """A database's whole schema, as text too, and the length of that."""

    doc: SchemaDoc
    text: str
    tokens: int


if TYPE_CHECKING:
    from jax_t2sql.equivalence import Verdict as EquivalenceVerdict


class PromptBuilder:
    """Prompts as token ids; schemas are read once a database, prompts made once a question.

    A schema that leaves no room for an answer, or is over its own limit, loses the columns that
    matter least for the question.

    Args:
      databases: folder of databases, or one file.
      codec: turns messages into ids.
      episode: style and bounds.
      schema_tokens: most tokens of a schema; None: what the context leaves.
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
        find: Callable[[Path, str], Path] = resolve_database,
        read: Callable[[Path], SchemaDoc] | None = None,
    ):
        self.databases, self.codec, self.episode = databases, codec, episode
        self._schema_tokens = schema_tokens
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


@dataclass(frozen=True, slots=True)
class Rollout:
    """One finished episode and what it earned.

    Attributes:
      verdict: on the answer; None without one.
      equivalence: on the answer's query, where its result is right and it was checked.
    """

    state: EpisodeState
    verdict: Verdict | None
    reward: Reward
    equivalence: "EquivalenceVerdict | None" = None


def rollout_seed(*parts: int | str) -> int:
    """32 bits that differ for every rollout of a run and are the same in a replay."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def run_episodes(
    problems: Sequence[Problem],
    seeds: Sequence[int],
    *,
    policy: Policy,
    prompts: PromptBuilder,
    pool: GradingPool,
    temperature: float = 1.0,
) -> list[EpisodeState]:
    """Plays one episode for each (problem, seed); all of them have an ending.

    Args:
      problems: may name a problem several times (a group).
      seeds: one an episode; turn n of an episode samples with a seed made from its own and n.
      temperature: 0 is greedy.
    """
    codec = prompts.codec
    states = [start(problem, prompts.ids(problem), prompts.episode) for problem in problems]
    stop_strings = codec.stop_strings(prompts.episode.style, prompts.episode.options.tools)
    while due := [i for i, state in enumerate(states) if isinstance(state.pending, Generate)]:
        requests = [
            SampleRequest(
                prompt_ids=states[i].pending.prompt_ids,
                seed=rollout_seed(seeds[i], len(states[i].turns)),
                max_tokens=states[i].pending.max_tokens,
                temperature=temperature,
            )
            for i in due
        ]
        completions = policy.generate(requests, stop_strings=stop_strings)
        for i, completion in zip(due, completions, strict=True):
            states[i] = after_completion(states[i], completion, codec)
        queries = {
            i: pool.execute(prompts.path(states[i].problem), states[i].pending.sql)
            for i in due
            if isinstance(states[i].pending, RunSql)
        }
        for i, future in queries.items():
            states[i] = after_sql(states[i], future.result(), codec)
    return states


def grade_episodes(
    states: Sequence[EpisodeState],
    *,
    prompts: PromptBuilder,
    pool: GradingPool,
    reward_empty: bool = False,
    rule: RewardRule | None = None,
    equivalence: EquivalenceRule | None = None,
) -> list[Rollout]:
    """Runs and compares every answer; gives each episode its reward.

    Args:
      rule: what earns how much.
      equivalence: how answers whose result is right are checked for equivalence with the gold
        query; by default they are not.
      reward_empty: reward answers to questions whose gold result is empty like others; by default
        such rollouts are invalid, since any empty result would match.
    """
    answered = [i for i, state in enumerate(states) if state.ending.kind == "answered"]
    jobs = [
        GradeJob(
            prompts.path(states[i].problem),
            states[i].problem.gold_sql,
            states[i].ending.sql,
            states[i].problem.grading,
        )
        for i in answered
    ]
    verdicts = dict(zip(answered, pool.grade_many(jobs), strict=True))
    if reward_empty:
        verdicts = {i: _without_empty(verdict) for i, verdict in verdicts.items()}
    checks = {}
    if equivalence is not None:
        checks = {
            i: pool.check_equivalence(
                job.gold_sql,
                job.pred_sql,
                schema=job.db_path,
                mode=job.mode,
                rule=equivalence,
            )
            for i, job in zip(answered, jobs, strict=True)
            if verdicts[i].status == "equal"
        }
    checked = {i: _check_result(future) for i, future in checks.items()}
    rule = rule or RewardRule()
    rollouts = []
    for i, state in enumerate(states):
        check = checked.get(i)
        refuted = None if check is None else check.kind == "refuted"
        earned = reward(
            state.ending,
            verdicts.get(i),
            refuted=refuted,
            further=_evidence_terms(state, prompts, rule),
            rule=rule,
        )
        rollouts.append(Rollout(state, verdicts.get(i), earned, check))
    return rollouts


def _evidence_terms(
    state: EpisodeState, prompts: PromptBuilder, rule: RewardRule
) -> dict[str, float]:
    """What missed rules on structured evidence cost; nothing where the prompt asked for none."""
    if prompts.episode.style == "question" or prompts.episode.options.evidence != "structured":
        return {}
    found = check_evidence(
        state.problem.evidence,
        [turn.text for turn in state.turns],
        inside_reasoning=prompts.codec.opens_reasoning,
    )
    if not found.pieces:
        return {}
    return {
        "requirement": rule.evidence if found.requirement_missing else 0.0,
        "verification": rule.evidence if found.verification_missing else 0.0,
    }


def _check_result(future: "Future[EquivalenceVerdict]") -> "EquivalenceVerdict":
    """The verdict; a schema that the checker cannot read leaves it open, and the run goes on."""
    try:
        return future.result()
    except UserError as error:
        from jax_t2sql.equivalence import unknown  # loads a solver, for runs that check alone

        return unknown(f"the check cannot be run: {error}")


def _without_empty(verdict: Verdict) -> Verdict:
    if verdict.status != "gold_empty":
        return verdict
    return replace(verdict, status="equal" if verdict.matches else "different")


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
