"""Episodes of many questions at once, sampled in lock step, run and graded in the SQL pool.

The in-process sampler is fastest with everything in one batch, so all episodes take a turn
together: one `Policy.generate` for every turn due, then every query due in the pool.
"""

import hashlib
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
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
from jax_t2sql.prompt_builder import PromptBuilder
from jax_t2sql.sampling.policy import Policy, SampleRequest
from jax_t2sql.text2sql import (
    Compliance,
    EpisodeState,
    Generate,
    Problem,
    RunSql,
    after_completion,
    after_sql,
    as_if_ended,
    check_evidence,
    start,
)

if TYPE_CHECKING:
    from jax_t2sql.equivalence import Verdict as EquivalenceVerdict


@dataclass(frozen=True, slots=True)
class Rollout:
    """One finished episode and what it earned.

    Attributes:
      verdict: on the answer; None without one.
      equivalence: on the answer's query, where its result is right and it was checked.
      compliance: with the two rules on numbered knowledge, where the prompt asked for it.
    """

    state: EpisodeState
    verdict: Verdict | None
    reward: Reward
    equivalence: "EquivalenceVerdict | None" = None
    compliance: Compliance | None = None


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
    rule = rule or RewardRule()
    if rule.lenient:
        states = [as_if_ended(state, prompts.codec) for state in states]
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
    rollouts = []
    for i, state in enumerate(states):
        compliance = _compliance(state, prompts)
        check = checked.get(i)
        refuted = None if check is None else check.kind == "refuted"
        earned = reward(
            state.ending,
            verdicts.get(i),
            refuted=refuted,
            further=_evidence_terms(compliance, rule),
            rule=rule,
        )
        rollouts.append(Rollout(state, verdicts.get(i), earned, check, compliance))
    return rollouts


def _compliance(state: EpisodeState, prompts: PromptBuilder) -> Compliance | None:
    """How the two rules on numbered knowledge were kept; None where the prompt asked for none."""
    if prompts.episode.style == "question" or prompts.episode.options.evidence != "structured":
        return None
    if state.problem.given == "wrong":  # to say how wrong knowledge is met must not pay
        return None
    found = check_evidence(
        state.problem.evidence,
        [turn.text for turn in state.turns],
        inside_reasoning=prompts.codec.opens_reasoning,
    )
    return found if found.pieces else None


def _evidence_terms(compliance: Compliance | None, rule: RewardRule) -> dict[str, float]:
    """What missed rules cost."""
    if compliance is None:
        return {}
    return {
        "requirement": rule.evidence if compliance.requirement_missing else 0.0,
        "verification": rule.evidence if compliance.verification_missing else 0.0,
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
