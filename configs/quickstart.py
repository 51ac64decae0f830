"""Reinforcement learning on text-to-SQL within minutes, on a laptop.

    launch/quickstart.sh                       # the same as the next line, with set-up
    python -m jax_t2sql.train --config configs/quickstart.py --workdir runs/quickstart

makes two small databases and questions over them, a 0.7-million-parameter Qwen3-style model and
its tokenizer, warms it up on 300 question/SQL pairs, then trains it by CISPO on the reward of its
own SQL. Hardware: two CPU cores, 2 GiB. Time and score: see the table in README.md.

With --model, --data and --databases the same configuration trains your model on your questions: a
LoRA adapter of rank 32, prompts with the schema, one SQL block as the answer.
"""

from jax_t2sql.config import TrainConfig


def get_config() -> TrainConfig:
    """The defaults: they are chosen for a first look."""
    return TrainConfig()
