"""The refined recipe on the hard part: questions not solved at their first visit.

The model is Qwen3-30B-A3B.

    python -m jax_t2sql.train --config configs/ablation_hard.py
        --workdir runs/ablation_hard

The split is made by `python -m data_pipelines.build bird_verified --solve-rates FILE`, FILE being
solves.jsonl of a run over all questions.

Hardware: a mesh of fsdp=8: 8 H100.
Memory: 35 GiB a device, by `python -m jax_t2sql.plan --length 32768`.
Time: an update of 4.5 million tokens takes 52 s on 8 H100 at 20 % of peak (arithmetic, not
measured); sampling them takes longer, on machines of its own.
Published score: none; reported as quick at first, with an early plateau and less stable.
Ratio bounds: 0 to 4. Run by us: two steps of its shape on a dense toy model with scripted answers,
no more.
"""

from dataclasses import replace

from jax_t2sql.config import TrainConfig
from jax_t2sql.recipes import refined


def get_config() -> TrainConfig:
    """See above."""
    config = refined("Qwen/Qwen3-30B-A3B", mesh="fsdp=8")
    return replace(
        config,
        data=replace(
            config.data, train="tfds:bird_verified@train_hard", eval="tfds:bird_verified@val"
        ),
    )
