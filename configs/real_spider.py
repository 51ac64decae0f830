"""A real model on human questions with two cores: CISPO on Spider train.

    launch/real_model.sh spider --model qwen2.5-coder-0.5b-instruct.gguf --data SPIDER_TRAIN
        --databases DIR --eval SPIDER_DEV --eval-databases DIR

Hardware: two CPU cores, 8 GiB. Time: about three hours of training, one of evaluation (estimated).
Published score: none. Ratio bounds: 0 to 4. Run by us: see README.md.
"""

from jax_t2sql.config import (
    AdapterConfig,
    CheckpointConfig,
    EvalConfig,
    LossConfig,
    OptimizerConfig,
    PromptConfig,
    RLConfig,
    TrainConfig,
)


def get_config() -> TrainConfig:
    """16 questions × 8 rollouts a step, one SQL block an answer; 300 questions before and after."""
    return TrainConfig(
        prompt=PromptConfig(style="direct", max_tokens=128, max_context=1536, schema_tokens=900),
        adapter=AdapterConfig(kind="lora", rank=32, alpha=32.0),
        loss=LossConfig(name="cispo", ratio_low=0.0, ratio_high=4.0),
        optimizer=OptimizerConfig(lr=1e-4, warmup_steps=5),
        rl=RLConfig(steps=25, groups=16, group_size=8),
        eval=EvalConfig(every=0, final_questions=300),
        checkpoint=CheckpointConfig(every=1),  # a step takes minutes
    )
