"""Opens a local model for the gate, on a sample of a pool or on fresh questions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from data_pipelines.onedb.gate import run_gate
from data_pipelines.onedb.gate_table import GateRow
from data_pipelines.onedb.live import Live
from data_pipelines.onedb.sampling import Sampling
from jax_t2sql.errors import UserError
from jax_t2sql.text2sql import Problem


def gate_model(
    policy: str,
    problems: Sequence[Problem],
    variants: Sequence[str],
    databases: Path,
    sampling: Sampling,
    *,
    live: Live | None = None,
    by_database: bool = False,
) -> list[GateRow]:
    """Runs the gate on `local:MODEL[+ADAPTER]`.

    Raises:
      UserError: the policy, the questions or the databases cannot be used.
    """
    from jax_t2sql.assembly import enable_compilation_cache, episode_config
    from jax_t2sql.config import PromptConfig
    from jax_t2sql.eval.specs import parse_policy
    from jax_t2sql.grading import GradingPool
    from jax_t2sql.models import check_model, load_adapter, load_model
    from jax_t2sql.sampling.chat import ChatCodec
    from jax_t2sql.sampling.engine import Engine

    for name in ("samples", "max_tokens", "rows", "workers"):
        if getattr(sampling, name) < 1:
            raise UserError(f"--{name.replace('_', '-')} must be at least 1")
    spec = parse_policy(policy)
    if spec.kind != "local":
        raise UserError(f"--policy is {policy!r}; it must be local:MODEL or local:MODEL+ADAPTER")
    check_model(spec.target)
    enable_compilation_cache()
    model = load_model(spec.target)
    adapter = load_adapter(Path(spec.adapter), model.config) if spec.adapter else None
    codec = ChatCodec(model.tokenizer)
    prompt = PromptConfig(
        style=sampling.style, max_tokens=sampling.max_tokens, max_context=sampling.max_context
    )
    episode = episode_config(prompt, model, default_context=8192, options="--")
    engine = Engine(
        model.config,
        model.params,
        adapter,
        stop_ids=codec.stop_ids,
        decode=codec.decode,
        max_rows=sampling.rows,
    )
    with GradingPool(sampling.workers) as pool:
        return run_gate(
            problems,
            variants,
            policy=engine,
            codec=codec,
            episode=episode,
            databases=databases,
            pool=pool,
            live=live,
            samples=sampling.samples,
            seed=sampling.seed,
            by_database=by_database,
            say=lambda text: print(text, file=sys.stderr),
        )
