"""The refined recipe with hints for questions that no rollout answered.

The model is Qwen3-30B-A3B.

    python -m jax_t2sql.train --config configs/ablation_hints.py
        --workdir runs/ablation_hints

Hints come from `python -m data_pipelines.hints`, for these questions, before the run. Strong ones
leave nothing to learn from (all rollouts right): hence light.

Hardware: a mesh of fsdp=8: 8 H100.
Memory: 35 GiB a device, by `python -m jax_t2sql.plan --length 32768`.
Time: an update of 4.5 million tokens takes 52 s on 8 H100 at 20 % of peak (arithmetic, not
measured); sampling them takes longer, on machines of its own.
Published score: none on this model; 1.5 points on the reproduction's.
Ratio bounds: 0 to 4. Run by us: two steps of its shape on a dense toy model with scripted answers,
no more.
"""

from dataclasses import replace

from jax_t2sql.config import HintsConfig, TrainConfig
from jax_t2sql.recipes import refined


def get_config() -> TrainConfig:
    """See above."""
    config = refined("Qwen/Qwen3-30B-A3B", mesh="fsdp=8")
    return replace(config, hints=HintsConfig(file="hints.jsonl", strength="light"))
