"""The published recipe as one configuration, of which the files in configs/ change a few fields.

Sources: ReViSQL (arXiv 2603.20004 and github.com/uiuc-kang-lab/ReViSQL): CISPO, LoRA of rank 32 on
all linear layers, 64 questions × 16 rollouts a step, learning rate 5e-5, at most five SQL turns of
3,072 tokens, 30 seconds a query and a check, the best checkpoint of the validation split. Its
script clips the importance ratio to [0.8, 1.2]. ReViSQL-BIRD adds two shaping rewards: 0.2 off a
right answer that is refuted, 0.1 off for each of two rules on external knowledge. Not published,
and so ours: the number of steps (three passes over 2,064 questions), warm-up and decay of the
learning rate, the context of 32,768 tokens (the script's limit of a prompt).
"""

from dataclasses import replace

from jax_t2sql.config import (
    AdapterConfig,
    DataConfig,
    EvalConfig,
    FleetConfig,
    GradingConfig,
    LearnerConfig,
    LossConfig,
    OptimizerConfig,
    PromptConfig,
    RewardConfig,
    RLConfig,
    TrainConfig,
)


def revisql(model: str, *, mesh: str | None = None) -> TrainConfig:
    """Correct results alone are rewarded, on BIRD-Verified; samplers wait for every update.

    Samplers are processes of their own (`launch/samplers.sh`): eight, or as many as there are.

    Args:
      model: a hub id.
      mesh: of the learner; None: one device.
    """
    return TrainConfig(
        model=model,
        mesh=mesh,
        data=DataConfig(train="tfds:bird_verified"),
        prompt=PromptConfig(style="tools", max_turns=5, max_tokens=3072, max_context=32_768),
        adapter=AdapterConfig(kind="lora", rank=32, alpha=32.0),
        loss=LossConfig(name="cispo", ratio_low=0.8, ratio_high=1.2),
        optimizer=OptimizerConfig(lr=5e-5, warmup_steps=5),
        rl=RLConfig(steps=96, groups=64, group_size=16),
        eval=EvalConfig(every=10, questions=None),
        fleet=FleetConfig(workers=8),
        grading=GradingConfig(workers=16, seconds=30.0),
        learner=LearnerConfig(dtype="bfloat16"),
    )


def revisql_bird(model: str, *, mesh: str | None = None) -> TrainConfig:
    """The same with both shaping rewards, and prompts that number the external knowledge."""
    config = revisql(model, mesh=mesh)
    return replace(
        config,
        prompt=replace(config.prompt, evidence="structured"),
        reward=RewardConfig(
            equivalence="check",
            equivalence_penalty=0.2,
            equivalence_seconds=30.0,
            evidence_penalty=0.1,
        ),
    )


def refined(model: str, *, mesh: str | None = None, max_tokens: int = 3072) -> TrainConfig:
    """ReViSQL-BIRD with what a later reproduction changed.

    Sampling goes on while the learner updates; a turn that is cut off is no answer; a worked
    example stands in the prompt. (It also had warm-up and cosine decay, and exact grading, which
    all of our configurations have.) Ratios are bounded by [0, 4], so that a stale token may lose
    all weight but is never pulled up to 0.8.

    Args:
      model, mesh: as for `revisql`.
      max_tokens: of a turn. The reproduction used 3,072 or 8,192, by model.
    """
    config = revisql_bird(model, mesh=mesh)
    return replace(
        config,
        prompt=replace(config.prompt, max_tokens=max_tokens, worked_example=True),
        loss=LossConfig(name="cispo", ratio_low=0.0, ratio_high=4.0),
        rl=replace(config.rl, max_staleness=4),
        eval=replace(config.eval, patience=4),
    )


def quantised(config: TrainConfig) -> TrainConfig:
    """Expert kernels of the frozen base in four bits, groups of 32."""
    learner = replace(config.learner, bits=4, bits_group=32, bits_targets="expert_")
    return replace(config, learner=learner)
