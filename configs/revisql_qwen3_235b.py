"""ReViSQL: correct results rewarded on BIRD-Verified, Qwen3-235B-A22B (mixture of experts).

    python -m jax_t2sql.train --config configs/revisql_qwen3_235b.py
        --workdir runs/revisql_qwen3_235b

Hardware: a mesh of fsdp=8,expert=4: 32 H100.
Memory: 69 GiB a device, by `python -m jax_t2sql.plan --length 32768`.
Time: an update of 4.5 million tokens takes 92 s on 32 H100 at 20 % of peak (arithmetic, not
measured); sampling them takes longer, on machines of its own.
Published score: 93.2 % on expert-verified BIRD Mini-Dev with majority voting (arXiv 2603.20004);
37.04 % greedy on Spider2-SQLite.
Ratio bounds: 0.8 to 1.2. Run by us: two steps of its shape on a dense toy model with scripted
answers, no more.
"""

from jax_t2sql.config import TrainConfig
from jax_t2sql.recipes import revisql


def get_config() -> TrainConfig:
    """See above."""
    return revisql("Qwen/Qwen3-235B-A22B", mesh="fsdp=8,expert=4")
