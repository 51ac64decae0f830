"""What makes two processes part of one run: hashes of all that gives its rollouts their meaning."""

import hashlib
import json
from typing import TYPE_CHECKING

import jax_t2sql
from jax_t2sql.bus import Bounds, Contract
from jax_t2sql.config import TrainConfig
from jax_t2sql.config_loading import to_dict
from jax_t2sql.rundir import identity
from jax_t2sql.sampling.vllm_experts import ExpertShape

if TYPE_CHECKING:  # it loads jax
    from jax_t2sql.assembly import Run


def grader_name(config: TrainConfig) -> str:
    """Which comparison a score rests on."""
    return f"jax_t2sql-{jax_t2sql.__version__}-{config.grading.seconds:g}s-{config.data.empty_gold}"


def make_contract(run: "Run") -> Contract:
    """Hashes of all that gives this run's rollouts their meaning."""
    config = run.config
    paths = {run.prompts.path(problem) for problem in run.questions.train}
    paths |= {run.heldout_prompts.path(problem) for problem in run.questions.heldout}
    return Contract(
        config=_digest(identity(to_dict(config))),
        code=jax_t2sql.__version__,
        base_model=run.model.sha256,
        tokenizer=run.model.tokenizer.sha256,
        prompt=_digest([run.prompts.ids(problem) for problem in run.questions.train]),
        grader=grader_name(config),
        data=_digest(
            [
                [
                    (p.question_id, p.db_id, p.question, p.evidence, p.gold_sql, p.grading)
                    for p in problems
                ]
                for problems in (run.questions.train, run.questions.heldout)
            ]
            + [sorted((path.name, path.stat().st_size) for path in paths)]
            + ([run.hints.sha256] if run.hints else [])
        ),
    )


def make_bounds(
    config: TrainConfig, *, vocab_size: int, experts: ExpertShape | None = None
) -> Bounds:
    """The numbers that the rules of the bus use; `experts` are those that samplers record."""
    return Bounds(
        vocab_size=vocab_size,
        groups_per_batch=config.rl.groups,
        max_staleness=config.rl.max_staleness,
        # An evaluation's question is one rollout, where a group is many.
        max_eval_tasks=config.rl.groups,
        experts=experts.bounds if experts else None,
    )


def _digest(value) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def run_name(contract: Contract) -> str:
    """Name of the run in adapter names."""
    return f"run-{contract.sha256[:8]}"
