"""The recipe as a later reproduction refined it, Kimi-K2.6 (DeepSeek-V3 architecture).

    python -m jax_t2sql.train --config configs/refined_kimi_k2.py
        --workdir runs/refined_kimi_k2

The reproduction used 3,072 or 8,192 tokens a turn and a reasoning effort by model; which for this
one is not published, so the number here is ours (--prompt.max-tokens, --prompt.reasoning-effort).

Hardware: a mesh of fsdp=16,expert=8: 128 TPU v5p or H200.
Memory: 84 GiB a device (experts in 4 bits), by `python -m jax_t2sql.plan --length 32768`.
Time: an update of 4.5 million tokens takes 73 s on 128 TPU v5p at 20 % of peak (arithmetic, not
measured); sampling them takes longer, on machines of its own.
Published score: none.
Ratio bounds: 0 to 4. Run by us: two steps of its shape on a dense toy model with scripted answers,
no more.
"""

from jax_t2sql.config import TrainConfig
from jax_t2sql.recipes import quantised, refined


def get_config() -> TrainConfig:
    """See above."""
    return quantised(refined("moonshotai/Kimi-K2.6", mesh="fsdp=16,expert=8"))
