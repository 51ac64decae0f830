"""Which experts a run's samplers record, for bus, sampler and learner alike."""

from jax_t2sql.config import TrainConfig
from jax_t2sql.errors import UserError
from jax_t2sql.models import ModelConfig
from jax_t2sql.sampling.vllm_experts import ExpertShape


def recorded_experts(config: TrainConfig, model: ModelConfig) -> ExpertShape | None:
    """What is recorded in this run; None if nothing.

    Raises:
      UserError: a record is asked for and the model has no experts.
    """
    if not config.sampler.record_experts:
        return None
    if model.moe is None:
        raise UserError(
            f"--sampler.record-experts: a {model.architecture} model has no experts; leave it out"
        )
    dense = model.moe.dense_layers
    return ExpertShape(
        before=dense,
        layers=model.num_layers - dense,
        chosen=model.moe.experts_per_token,
        count=model.moe.num_experts,
    )
