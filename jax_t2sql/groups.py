"""Groups of rollouts between sampler, bus and learner: made, measured, turned into trajectories.

Everything the learner needs comes from the bus's own `Group`, so a replayed group trains as it did
the first time.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from jax_t2sql.bus import Group, SamplerBus, Task
from jax_t2sql.bus import Rollout as BusRollout
from jax_t2sql.bus.groups import CORRECT, HINTED, WITHHELD, WRONG
from jax_t2sql.diagnostics import diagnose
from jax_t2sql.evaluation import is_correct, sample_record
from jax_t2sql.grading import EquivalenceRule, GradingPool, RewardRule
from jax_t2sql.learner import Trajectory, group_advantages
from jax_t2sql.prompt_builder import PromptBuilder
from jax_t2sql.rollouts import Rollout, grade_episodes, rollout_seed, run_episodes
from jax_t2sql.sampling.policy import Policy
from jax_t2sql.text2sql import Problem
from jax_t2sql.variants import Variants

CONSTANT = "constant"
"""Term of a rollout whose answer is equal but does not depend on the data: was it guessed?"""


def sample_groups(
    tasks: Sequence[Task],
    problems: Mapping[str, Problem],
    *,
    bus: SamplerBus,
    policy: Policy,
    prompts: PromptBuilder,
    pool: GradingPool,
    variants: Variants | None = None,
    reward_empty: bool = False,
    rule: RewardRule | None = None,
    equivalence: EquivalenceRule | None = None,
) -> list[Group]:
    """Samples and grades the rollouts of each task, one batch for all.

    `variants` puts the questions as their tasks ask for; None: as they are. `reward_empty`, `rule`
    and `equivalence` are as for `grade_episodes`.
    """
    put = variants.put if variants else lambda problem, task: problem
    asked = {task.seq: put(problems[task.problem], task) for task in tasks}
    repeated = [task for task in tasks for _ in range(task.group_size)]
    members = [member for task in tasks for member in range(task.group_size)]
    states = run_episodes(
        [asked[task.seq] for task in repeated],
        [rollout_seed(task.seed, member) for task, member in zip(repeated, members, strict=True)],
        policy=policy,
        prompts=prompts,
        pool=pool,
    )
    rollouts = iter(
        grade_episodes(
            states,
            prompts=prompts,
            pool=pool,
            reward_empty=reward_empty,
            rule=rule,
            equivalence=equivalence,
        )
    )
    return [
        bus.make_group(task, [bus_rollout(next(rollouts)) for _ in range(task.group_size)])
        for task in tasks
    ]


def bus_rollout(rollout: Rollout) -> BusRollout:
    """A finished, graded episode as the bus carries it."""
    state, record = rollout.state, rollout.state.experts
    return BusRollout.make(
        state.ids,
        mask_T=state.mask,
        logprobs_T=state.logprobs,
        versions_T=state.versions,
        reward=rollout.reward.total if rollout.reward.valid else None,
        terms={
            **rollout.reward.terms,
            CORRECT: float(is_correct(rollout)),
            CONSTANT: float(rollout.verdict is not None and rollout.verdict.constant),
            **_marks(state.problem),
        },
        ending=state.ending.kind,
        reason=state.ending.reason,
        trace=json.dumps(sample_record(rollout)),
        experts=None if record is None else (record.data, record.layers, record.chosen),
    )


def _marks(problem: Problem) -> dict[str, float]:
    """How the prompt differs from the question as it is."""
    marks = {HINTED: bool(problem.hint)}
    marks |= {WITHHELD: problem.given == "withheld", WRONG: problem.given == "wrong"}
    return {name: 1.0 for name, is_so in marks.items() if is_so}


def advantages(group: Group) -> tuple[np.ndarray, bool]:
    """Advantage of each rollout (0 where invalid), and whether the group carries no signal."""
    rewards_G = np.array([rollout.reward for rollout in group.rollouts])
    valid_G = np.array([rollout.valid for rollout in group.rollouts])
    return group_advantages(rewards_G, valid_G)


def trajectories(
    groups: Sequence[Group], *, version: int, samplers: Sequence[str]
) -> list[Trajectory]:
    """What the learner trains on: every valid rollout with its advantage.

    Tokens that were sampled with `version` have their sampler as source, by its place in
    `samplers`, from 1; 0 where it is not among them.
    """
    source = {name: number for number, name in enumerate(samplers, start=1)}
    return [
        Trajectory(
            rollout.ids_T,
            rollout.mask_T,
            rollout.logprobs_T,
            float(advantage),
            replay_TLE=rollout.experts_TLE,
            sources_T=np.where(rollout.versions_T == version, source.get(group.sampler, 0), 0),
        )
        for group in groups
        for rollout, advantage in zip(group.rollouts, advantages(group)[0], strict=True)
        if rollout.valid
    ]


def group_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """What the rollouts of a step say, for the run's record. Shares are of all rollouts."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    valid = [rollout for rollout in rollouts if rollout.valid]
    sampled = [int(rollout.mask_T.sum()) for rollout in rollouts]
    prompts = [int(np.argmax(rollout.mask_T)) for rollout in rollouts]
    # A turn starts where sampling starts.
    turns = [int((np.diff(rollout.mask_T.astype(int)) > 0).sum()) for rollout in rollouts]

    def mean(values) -> float:
        return float(np.mean(list(values)))

    return {
        "reward_mean": mean(r.reward for r in valid) if valid else float("nan"),
        "accuracy_train": mean(r.terms.get(CORRECT, 0.0) for r in rollouts),
        "zero_signal_share": mean(advantages(group)[1] for group in groups),
        "constant_share": mean(r.terms.get(CONSTANT, 0.0) for r in rollouts),
        "cut_off_share": mean(r.ending == "cut_off" for r in rollouts),
        "contract_broken_share": mean(r.ending == "contract_broken" for r in rollouts),
        "invalid_share": mean(not r.valid for r in rollouts),
        "completion_tokens_mean": mean(sampled),
        "prompt_tokens_mean": mean(prompts),
        "turns_mean": mean(turns),
        **prompt_metrics(groups),
        **equivalence_metrics(groups),
        **diagnose(groups),
    }


def prompt_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """How groups with and without hints came out, and whose evidence was changed.

    `groups_…` are shares of the groups without a hint, `hinted_…` of those with one, of which
    nothing is said where there are none; the other shares are of all groups.
    """
    hinted = [group for group in groups if _is(group, HINTED)]
    plain = [group for group in groups if not _is(group, HINTED)]
    metrics = {"hinted_share": len(hinted) / max(len(groups), 1)}
    for name, part in (("groups", plain), ("hinted", hinted)):
        outcomes = [group.outcome for group in part]
        judged = [o for o in outcomes if o.valid]
        if judged:
            unsolved = sum(o.solved == 0 for o in judged) / len(judged)
            solved = sum(o.solved == o.valid for o in judged) / len(judged)
            metrics[f"{name}_unsolved_share"] = unsolved
            metrics[f"{name}_mixed_share"] = max(1 - unsolved - solved, 0.0)
            metrics[f"{name}_solved_share"] = solved
    for name in (WITHHELD, WRONG):
        changed = sum(_is(group, name) for group in groups)
        if changed:
            metrics[f"{name}_share"] = changed / len(groups)
    return metrics


def _is(group: Group, term: str) -> bool:
    """Whether the group's prompt, one for all its rollouts, has this mark."""
    return any(term in rollout.terms for rollout in group.rollouts)


def equivalence_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """What the checks of a step's right answers came to; nothing where none was checked.

    Shares are of the checked. Of what refuted and of what left a pair open there is one number for
    each that occurred.
    """
    # The terms tell which were checked, so that only those traces are read.
    checked = [
        json.loads(rollout.trace)["equivalence"]
        for group in groups
        for rollout in group.rollouts
        if "equivalence" in rollout.terms
    ]
    if not checked:
        return {}
    counts = Counter(check["verdict"] for check in checked)
    for check in checked:
        if check["verdict"] == "refuted":
            counts[f"refuted_by_{check['source'].replace('-', '_')}"] += 1
        elif check["verdict"] == "unknown":
            counts[f"unknown_{check['cause']}"] += 1
    shares = {
        f"{name}_share": counts[name] / len(checked)
        for name in sorted({"refuted", "equivalent", "unknown"} | set(counts))
    }
    seconds = sum(check["cpu_seconds"] for check in checked)
    return shares | {"equivalence_checked": len(checked), "equivalence_cpu_seconds": seconds}


def solve_counts(groups: Sequence[Group], step: int) -> list[dict]:
    """How many rollouts of each question were right, of those that could be graded, in a step.

    Of questions as they are: those put with a hint are left out.
    """
    rows = []
    for group in [group for group in groups if not _is(group, HINTED)]:
        right = [r.terms.get(CORRECT, 0.0) > 0 for r in group.rollouts if r.valid]
        if right:
            row = {"step": step, "question_id": group.problem}
            rate = {"solve_rate": sum(right) / len(right)}  # what `data_pipelines.build` reads
            rows.append(row | {"right": sum(right), "of": len(right)} | rate)
    return rows


def sampled_tokens(groups: Sequence[Group]) -> int:
    """Ids that were sampled, over all rollouts."""
    return sum(int(rollout.mask_T.sum()) for group in groups for rollout in group.rollouts)


def traces(groups: Sequence[Group]) -> list[dict]:
    """Sampled episodes as people read them."""
    return [json.loads(rollout.trace) for group in groups for rollout in group.rollouts]
