"""ReViSQL: correct results rewarded on BIRD-Verified, Qwen2.5-Coder-7B-Instruct (dense).

    python -m jax_t2sql.train --config configs/revisql_qwen25_coder_7b.py
        --workdir runs/revisql_qwen25_coder_7b

Hardware: a mesh of fsdp=8: 8 H100 (one is large enough: 31 GiB).
Memory: at most 31 GiB a device, by `python -m jax_t2sql.plan --length 32768`.
Time: an update of 4.5 million tokens takes 60 s on 8 H100 at 40 % of peak (arithmetic, not
measured); sampling them takes longer, on machines of its own.
Published score: none.
Ratio bounds: 0.8 to 1.2. Run by us: two steps of its shape on a dense toy model with scripted
answers, no more.
"""

from jax_t2sql.config import TrainConfig
from jax_t2sql.recipes import revisql


def get_config() -> TrainConfig:
    """See above."""
    return revisql("Qwen/Qwen2.5-Coder-7B-Instruct", mesh="fsdp=8")
