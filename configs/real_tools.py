"""The flagship's path on a real model with two cores: SQL turns, numbered external knowledge.

    launch/real_model.sh tools --model qwen2.5-coder-0.5b-instruct.gguf --data QUESTIONS
        --databases DIR

Hardware: two CPU cores, 8 GiB. Time: not measured whole; minutes a step.
Published score: none. Ratio bounds: 0 to 4. Run by us: see README.md.
"""

from jax_t2sql.config import (
    AdapterConfig,
    CheckpointConfig,
    DataConfig,
    EvalConfig,
    LossConfig,
    OptimizerConfig,
    PromptConfig,
    RewardConfig,
    RLConfig,
    TrainConfig,
)


def get_config() -> TrainConfig:
    """4 questions × 4 rollouts a step, at most three SQL turns of 256 tokens."""
    return TrainConfig(
        data=DataConfig(eval_share=0.3),
        prompt=PromptConfig(
            style="tools", max_turns=3, max_tokens=256, max_context=4096, evidence="structured"
        ),
        adapter=AdapterConfig(kind="lora", rank=32, alpha=32.0),
        loss=LossConfig(name="cispo", ratio_low=0.0, ratio_high=4.0),
        optimizer=OptimizerConfig(lr=1e-4, warmup_steps=2),
        rl=RLConfig(steps=5, groups=4, group_size=4),
        reward=RewardConfig(equivalence="check"),
        eval=EvalConfig(every=0, final_questions=16),
        # With so many kept, no group is collected before all have been audited.
        checkpoint=CheckpointConfig(every=1, keep=1000),
    )
