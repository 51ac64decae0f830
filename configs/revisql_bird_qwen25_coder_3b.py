"""ReViSQL-BIRD: ReViSQL with both shaping rewards, Qwen2.5-Coder-3B-Instruct (dense).

    python -m jax_t2sql.train --config configs/revisql_bird_qwen25_coder_3b.py
        --workdir runs/revisql_bird_qwen25_coder_3b

Hardware: one H100 (17 GiB), or a mesh over several.
Memory: 17 GiB, by `python -m jax_t2sql.plan --length 32768`.
Time: an update of 4.5 million tokens takes 210 s on one H100 at 40 % of peak (arithmetic, not
measured); sampling them takes longer, on machines of its own.
Published score: none.
Ratio bounds: 0.8 to 1.2. Run by us: two steps of its shape on a dense toy model with scripted
answers, no more.
"""

from jax_t2sql.config import TrainConfig
from jax_t2sql.recipes import revisql_bird


def get_config() -> TrainConfig:
    """See above."""
    return revisql_bird("Qwen/Qwen2.5-Coder-3B-Instruct")
