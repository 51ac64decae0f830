"""Which metrics of a run are drawn together, and what is said of them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One metric as a curve; ``smooth`` adds its running mean over 1/20 of the run."""

    key: str
    label: str
    smooth: bool = False


@dataclass(frozen=True)
class Panel:
    """One chart. ``axis`` is "number", "share" (0 to 100 %) or "log"."""

    title: str
    about: str
    lines: tuple[Line, ...]
    axis: str = "number"
    phase: str = "rl"


PANELS = (
    Panel(
        "Accuracy",
        "Share of answers whose result equals the gold result. The band is the 95 % Wilson "
        "interval of the held-out accuracy.",
        (
            Line("eval_accuracy", "held out, greedy"),
            Line("accuracy_train", "training, sampled", smooth=True),
            Line("eval_accuracy_seen", "held out, seen templates"),
            Line("eval_accuracy_unseen", "held out, unseen templates"),
        ),
        axis="share",
    ),
    Panel(
        "Reward",
        "Mean reward of the sampled rollouts: 1 equal, 0 different or failing, "
        "−1 contract broken or cut off.",
        (Line("reward_mean", "mean reward", smooth=True),),
    ),
    Panel(
        "Groups",
        "Of the questions of a step, by how many of their rollouts are right. No signal: all "
        "rewards of the group are the same, so it teaches nothing.",
        (
            Line("groups_mixed_share", "some right"),
            Line("groups_solved_share", "all right"),
            Line("groups_unsolved_share", "none right"),
            Line("zero_signal_share", "no signal"),
        ),
        axis="share",
    ),
    Panel(
        "Groups with a hint",
        "Questions that no rollout answered are asked once more with a hint.",
        (
            Line("hinted_share", "of all groups"),
            Line("hinted_mixed_share", "of them, some right"),
            Line("hinted_solved_share", "of them, all right"),
            Line("hinted_unsolved_share", "of them, none right"),
        ),
        axis="share",
    ),
    Panel(
        "Pool and test",
        "Right at the last visit of every training question met so far, sampled, beside the "
        "held-out accuracy, greedy. The first grows with what is learned by heart too.",
        (Line("pool_accuracy", "training pool"), Line("eval_accuracy", "held out")),
        axis="share",
    ),
    Panel(
        "Churn",
        "Of the questions met again in a step. Gained: none was right at the last visit, now some "
        "are. Lost: the reverse.",
        (
            Line("revisited_share", "met again, of all"),
            Line("gained_share", "gained"),
            Line("lost_share", "lost"),
        ),
        axis="share",
    ),
    Panel(
        "Share of rollouts",
        "How episodes end without an answer that counts.",
        (
            Line("cut_off_share", "cut off"),
            Line("contract_broken_share", "contract broken"),
            Line("invalid_share", "invalid (infrastructure)"),
        ),
        axis="share",
    ),
    Panel(
        "Equivalence",
        "Of the right answers that were checked. Refuted: a database shows that the query is not "
        "equivalent to the gold query, so that it was right by luck.",
        (
            Line("refuted_share", "refuted (false positive)"),
            Line("equivalent_share", "equivalent up to the bound"),
            Line("unknown_share", "unknown"),
        ),
        axis="share",
    ),
    Panel(
        "Failing queries",
        "Answers, and calls before them, whose query gave no result.",
        (
            Line("answers_failed_share", "answers"),
            Line("calls_failed_share", "calls"),
            Line("answers_error_share", "answers with an error of SQL"),
            Line("answers_timeout_share", "answers out of time"),
        ),
        axis="share",
    ),
    Panel(
        "External knowledge",
        "Complied: both blocks name every piece. Used: of the columns and values that the "
        "knowledge names, how many the SQL holds (an estimate).",
        (
            Line("evidence_complied_share", "complied"),
            Line("evidence_used_share", "used"),
            Line("requirement_missed_share", "requirement block missed"),
            Line("verification_missed_share", "verification block missed"),
        ),
        axis="share",
    ),
    Panel(
        "What is read and computed",
        "Answers that read, join and call what the gold query does.",
        (
            Line("same_tables_share", "tables"),
            Line("same_joins_share", "number of joins"),
            Line("same_aggregates_share", "aggregates"),
            Line("same_functions_share", "functions"),
        ),
        axis="share",
    ),
    Panel(
        "How it is nested",
        "Answers that nest and combine as the gold query does.",
        (
            Line("same_subqueries_share", "subqueries"),
            Line("same_set_operations_share", "set operations"),
            Line("same_ctes_share", "common table expressions"),
            Line("same_windows_share", "windows"),
        ),
        axis="share",
    ),
    Panel(
        "DISTINCT",
        "Left out: of the answers whose gold query removes doubles. Needless: of the others.",
        (
            Line("distinct_omitted_share", "left out"),
            Line("distinct_superfluous_share", "needless"),
        ),
        axis="share",
    ),
    Panel("Loss", "Of the policy update.", (Line("loss", "loss", smooth=True),)),
    Panel(
        "Importance ratio",
        "Learner's over sampler's probability of the sampled tokens; "
        "the mean is 1 when nothing is stale.",
        (Line("ratio_mean", "mean"), Line("ratio_max", "largest")),
        axis="log",
    ),
    Panel(
        "Log-prob gap",
        "Mean |log π learner − log π sampler|: float noise when nothing is stale.",
        (Line("logprob_gap", "gap"),),
        axis="log",
    ),
    Panel(
        "Clipped tokens",
        "Share of tokens whose weight was clipped.",
        (Line("clip_fraction", "clipped"),),
        axis="share",
    ),
    Panel("Gradient norm", "Before clipping.", (Line("grad_norm", "norm", smooth=True),)),
    Panel(
        "Tokens an episode",
        "Means over the rollouts of a step.",
        (Line("completion_tokens_mean", "sampled"), Line("prompt_tokens_mean", "prompt")),
    ),
    Panel("Turns an episode", "Mean over the rollouts of a step.", (Line("turns_mean", "turns"),)),
    Panel(
        "Staleness",
        "Staleness: steps between sampling and training. Length: used over all episodes; "
        "below 1, long ones are lost.",
        (Line("staleness_mean", "staleness"), Line("length_used_vs_all", "length, used / all")),
    ),
    Panel(
        "Seconds a step",
        "Where the time goes.",
        (
            Line("seconds_sample", "sampling and grading"),
            Line("seconds_update", "update"),
        ),
    ),
    Panel("Throughput", "Tokens a second.", (Line("tokens_per_second", "tokens / s"),)),
    Panel("Learning rate", "As applied.", (Line("lr", "learning rate"),)),
    Panel(
        "Warm-up loss",
        "Supervised, before reinforcement learning.",
        (Line("loss", "loss"),),
        phase="warmup",
    ),
)
