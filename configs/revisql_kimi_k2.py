"""ReViSQL: correct results rewarded on BIRD-Verified, Kimi-K2.6 (DeepSeek-V3 architecture).

    python -m jax_t2sql.train --config configs/revisql_kimi_k2.py
        --workdir runs/revisql_kimi_k2

Hardware: a mesh of fsdp=16,expert=8: 128 TPU v5p or H200.
Memory: 84 GiB a device (experts in 4 bits), by `python -m jax_t2sql.plan --length 32768`.
Time: an update of 4.5 million tokens takes 73 s on 128 TPU v5p at 20 % of peak (arithmetic, not
measured); sampling them takes longer, on machines of its own.
Published score: none.
Ratio bounds: 0.8 to 1.2. Run by us: two steps of its shape on a dense toy model with scripted
answers, no more.
"""

from jax_t2sql.config import TrainConfig
from jax_t2sql.recipes import quantised, revisql


def get_config() -> TrainConfig:
    """See above."""
    return quantised(revisql("moonshotai/Kimi-K2.6", mesh="fsdp=16,expert=8"))
