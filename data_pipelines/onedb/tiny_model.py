"""A pool cut into warm-up, training and held-out files, and a small model to train on them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

from jax_t2sql.errors import UserError

VOCABULARY = 1024


def split_rows(
    rows: Sequence[dict], *, warmup: int, heldout: int, seed: int
) -> dict[str, list[dict]]:
    """Rows by file; no query is in two of them.

    Args:
      rows: of a pool.
      warmup: rows for the supervised warm-up. heldout: rows for evaluation.
      seed: which ones.

    Raises:
      UserError: the pool is too small.
    """
    if warmup < 1 or heldout < 1 or warmup + heldout >= len(rows):
        raise UserError(
            f"{len(rows)} rows cannot give {warmup} for the warm-up, {heldout} held out and some to"
            " train on; lower --warmup or --heldout"
        )
    by_query: dict[str, list[dict]] = {}
    for row in rows:
        by_query.setdefault(row["SQL"], []).append(row)
    queries = sorted(by_query)
    random.Random(seed).shuffle(queries)
    parts: dict[str, list[dict]] = {"heldout": [], "warmup": [], "train": []}
    for query in queries:
        name = next(
            name
            for name, size in (("heldout", heldout), ("warmup", warmup), ("train", None))
            if size is None or len(parts[name]) < size
        )
        parts[name] += by_query[query]
    if not parts["train"]:
        raise UserError("no row is left to train on; lower --warmup or --heldout")
    return parts


def make_tiny(rows: Sequence[dict], out: Path, *, seed: int) -> None:
    """Writes a random Qwen3-style model and a tokenizer fitted to questions and queries.

    The tokenizer sees the queries as plain text; the model is never trained on it here.
    """
    import jax

    from jax_t2sql.models import LoadedModel, init_params, save_hf
    from jax_t2sql.models.tiny import tiny_config, train_tokenizer

    texts = [text for row in rows for text in (row["question"], row["SQL"])]
    tokenizer = train_tokenizer(texts, vocab_size=VOCABULARY)
    config = tiny_config(tokenizer.vocab_size, kv_heads=4)
    params = init_params(config, jax.random.key(seed), "float32")
    save_hf(
        LoadedModel(config=config, params=params, tokenizer=tokenizer, source="tiny", sha256=""),
        out,
    )


def write_parts(parts: dict[str, list[dict]], folder: Path) -> None:
    """Writes one question file a part."""
    for name, rows in parts.items():
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
