"""Where rollouts come from: the policy interface, chat formats, and the in-process engine.

`policy` says what every sampler offers, `chat` turns conversations into token ids by the model's
own template, `engine` (the only module here that imports JAX) samples in this process.
"""

from jax_t2sql.sampling.chat import ChatCodec
from jax_t2sql.sampling.policy import Policy, SampleRequest

__all__ = ["ChatCodec", "Policy", "SampleRequest"]
