"""ReViSQL-BIRD: ReViSQL with both shaping rewards, Qwen3-30B-A3B (mixture of experts).

    python -m jax_t2sql.train --config configs/revisql_bird_qwen3_30b.py
        --workdir runs/revisql_bird_qwen3_30b

Hardware: a mesh of fsdp=8: 8 H100.
Memory: 35 GiB a device, by `python -m jax_t2sql.plan --length 32768`.
Time: an update of 4.5 million tokens takes 52 s on 8 H100 at 20 % of peak (arithmetic, not
measured); sampling them takes longer, on machines of its own.
Published score: none.
Ratio bounds: 0.8 to 1.2. Run by us: two steps of its shape on a dense toy model with scripted
answers, no more.
"""

from jax_t2sql.config import TrainConfig
from jax_t2sql.recipes import revisql_bird


def get_config() -> TrainConfig:
    """See above."""
    return revisql_bird("Qwen/Qwen3-30B-A3B", mesh="fsdp=8")
