"""The recipe as a later reproduction refined it, Qwen3-30B-A3B (mixture of experts).

    python -m jax_t2sql.train --config configs/refined_qwen3_30b.py
        --workdir runs/refined_qwen3_30b

The reproduction used 3,072 or 8,192 tokens a turn and a reasoning effort by model; which for this
one is not published, so the number here is ours (--prompt.max-tokens, --prompt.reasoning-effort).

Hardware: a mesh of fsdp=8: 8 H100.
Memory: 35 GiB a device, by `python -m jax_t2sql.plan --length 32768`.
Time: an update of 4.5 million tokens takes 52 s on 8 H100 at 20 % of peak (arithmetic, not
measured); sampling them takes longer, on machines of its own.
Published score: none.
Ratio bounds: 0 to 4. Run by us: two steps of its shape on a dense toy model with scripted answers,
no more.
"""

from jax_t2sql.config import TrainConfig
from jax_t2sql.recipes import refined


def get_config() -> TrainConfig:
    """See above."""
    return refined("Qwen/Qwen3-30B-A3B", mesh="fsdp=8")
