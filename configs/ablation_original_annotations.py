"""ReViSQL-BIRD on the same questions as BIRD annotated them, before correction.

The model is Qwen3-30B-A3B.

    python -m jax_t2sql.train --config configs/ablation_original_annotations.py
        --workdir runs/ablation_original_annotations

The set is made of BIRD-Verified's own file, which has both:

    jq -c '{question_id, db_id, split, grading_method, question: .original_question,
        evidence: .original_evidence, SQL: .original_SQL}' bird_verified_train.jsonl > own.jsonl
    python -m data_pipelines.import_data --questions own.jsonl --databases DIR
        --name bird_verified_original --out data

Hardware: a mesh of fsdp=8: 8 H100.
Memory: 35 GiB a device, by `python -m jax_t2sql.plan --length 32768`.
Time: an update of 4.5 million tokens takes 52 s on 8 H100 at 20 % of peak (arithmetic, not
measured); sampling them takes longer, on machines of its own.
Published score: none on this model; uncorrected data lost 7.0 / 5.0 points against the base model,
clean data gained 7.2 / 5.0 (Arcwise-Plat-SQL / -Full).
Ratio bounds: 0.8 to 1.2. Run by us: two steps of its shape on a dense toy model with scripted
answers, no more.
"""

from dataclasses import replace

from jax_t2sql.config import TrainConfig
from jax_t2sql.recipes import revisql_bird


def get_config() -> TrainConfig:
    """See above."""
    config = revisql_bird("Qwen/Qwen3-30B-A3B", mesh="fsdp=8")
    return replace(
        config,
        data=replace(
            config.data, train="tfds:bird_verified_original@train", eval="tfds:bird_verified@val"
        ),
    )
