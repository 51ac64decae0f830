"""Before training: which prompt gives an untrained policy something to learn from?

Group-relative rewards teach where some of a question's answers are right and some are wrong. For
each variant of the prompt the gate samples k answers to each question and tabulates the share that
is right, solved at least once, mixed, and not finished.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from data_pipelines.onedb.evidence import question_legend
from data_pipelines.onedb.gate_table import GateRow
from data_pipelines.onedb.live import Live
from jax_t2sql.errors import UserError
from jax_t2sql.grading import GradingPool
from jax_t2sql.prompt_builder import PromptBuilder
from jax_t2sql.rollouts import Rollout, grade_episodes, rollout_seed, run_episodes
from jax_t2sql.sampling.policy import Policy
from jax_t2sql.stats import wilson
from jax_t2sql.text2sql import Codec, EpisodeConfig, Problem

VARIANTS = ("bare", "evidence", "legend", "tools", "tools+legend")


def variant_problem(problem: Problem, variant: str, live: Live | None) -> Problem:
    """The question as a variant puts it.

    bare: without evidence; evidence: with its own; legend: with its own and the whole legend.
    """
    if "legend" in variant:
        if live is None:
            raise UserError(f"variant {variant!r} needs one database with its legend")
        return replace(problem, evidence=question_legend(live, problem.evidence))
    return problem if variant == "evidence" else replace(problem, evidence="")


def summarise(variant: str, groups: Sequence[Sequence[Rollout]], *, too_long: int = 0) -> GateRow:
    """Figures of one variant from its groups of rollouts.

    Args:
      groups: one a question, all of one size.
    """
    rights = [[_right(rollout) for rollout in group] for group in groups]
    flat = [right for group in rights for right in group]
    unfinished = sum(r.state.ending.kind != "answered" for group in groups for r in group)
    n = len(flat) or 1
    return GateRow(
        variant=variant,
        questions=len(groups),
        samples=len(groups[0]) if groups else 0,
        right=sum(flat) / n,
        interval=wilson(sum(flat), len(flat)),
        solved=sum(map(any, rights)) / (len(groups) or 1),
        mixed=sum(any(g) and not all(g) for g in rights) / (len(groups) or 1),
        unfinished=unfinished / n,
        too_long=too_long,
    )


def _right(rollout: Rollout) -> bool:
    return rollout.verdict is not None and rollout.verdict.matches


def run_gate(
    problems: Sequence[Problem],
    variants: Sequence[str],
    *,
    policy: Policy,
    codec: Codec,
    episode: EpisodeConfig,
    databases: Path,
    pool: GradingPool,
    live: Live | None = None,
    samples: int = 8,
    seed: int = 0,
    by_database: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> list[GateRow]:
    """Samples answers for each variant, at temperature 1.

    Args:
      problems: questions whose golds run.
      variants: of `VARIANTS`.
      episode: bounds; its style is used by variants that name none.
      samples: answers a question.
      by_database: one row a variant and database.

    Raises:
      UserError: an unknown variant, or no prompt that fits.
    """
    rows = []
    for variant in variants:
        if variant not in VARIANTS:
            raise UserError(f"variant {variant!r} is unknown; there are {', '.join(VARIANTS)}")
        bounds = replace(episode, style="tools") if variant.startswith("tools") else episode
        prompts = PromptBuilder(databases, codec, bounds)
        put = [variant_problem(problem, variant, live) for problem in problems]
        fitting, too_long = prompts.split_by_length(put)
        if not fitting:
            raise UserError(f"variant {variant!r}: no question fits the context; raise it")
        say(f"{variant}: {len(fitting)} questions × {samples}")
        many = [problem for problem in fitting for _ in range(samples)]
        seeds = [rollout_seed(seed, p.question_id, i % samples) for i, p in enumerate(many)]
        states = run_episodes(many, seeds, policy=policy, prompts=prompts, pool=pool)
        rollouts = grade_episodes(states, prompts=prompts, pool=pool)
        groups = [rollouts[i : i + samples] for i in range(0, len(rollouts), samples)]
        if not by_database:
            rows.append(summarise(variant, groups, too_long=len(too_long)))
            continue
        parts: dict[str, list] = defaultdict(list)
        for problem, group in zip(fitting, groups, strict=True):
            parts[problem.db_id].append(group)
        rows += [summarise(f"{variant} {name}", parts[name]) for name in sorted(parts)]
    return rows
