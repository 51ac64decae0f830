"""Reinforcement learning and fine-tuning of any JAX language model that is two pure functions.

The learner knows nothing of text, SQL, samplers or files of rollouts. It takes token sequences with
an advantage each, and gives back updated weights. A complete example, with a model of one layer:

>>> import jax, jax.numpy as jnp, numpy as np
>>> from jax_t2sql.learner import (
...     LoraSpec, Trajectory, cispo, group_advantages, lora_linear, make_learner, make_optimizer,
...     pack)
>>> def hidden_fn(base, adapter, tokens_BT, positions_BT, segments_BT):
...     x_BTD = base["embed"]["embedding"][tokens_BT]
...     return jnp.tanh(lora_linear(x_BTD, base["mix"]["kernel"], adapter["mix"]))
>>> def unembed_fn(base, adapter, hidden_ND):
...     return hidden_ND @ base["embed"]["embedding"].T
>>> base = {"embed": {"embedding": jax.random.normal(jax.random.key(0), (8, 4))},
...         "mix": {"kernel": jnp.eye(4)}}
>>> learner = make_learner(
...     hidden_fn, unembed_fn,
...     adapter=LoraSpec(targets="all-linear", rank=2, alpha=2),
...     loss=cispo(low=0.0, high=4.0),
...     optimizer=make_optimizer(peak_lr=1e-2, warmup_steps=0, total_steps=100))
>>> state = learner.init(base, jax.random.key(1))

Two answers to the prompt (1, 2), one right and one wrong, with the log-probs that the sampler
measured (here: of a uniform guess among 8 tokens):

>>> advantages_G, zero_signal = group_advantages(np.array([1.0, 0.0]))
>>> sampled_T, logprobs_T = [False, False, True, True], np.full(4, -np.log(8))
>>> batch = pack(
...     [Trajectory([1, 2, 3, 4], sampled_T, logprobs_T, advantages_G[0]),
...      Trajectory([1, 2, 5, 6], sampled_T, logprobs_T, advantages_G[1])],
...     row_length=8, rows_per_microbatch=1)
>>> before = learner.logprobs(base, state, batch)
>>> for _ in range(20):
...     state, metrics = learner.update(base, state, batch)     # the old state is donated
>>> gain = (learner.logprobs(base, state, batch) - before)[0, 0]  # two tokens of each answer
>>> bool(gain[:2].sum() > 0 and gain[:2].sum() > gain[2:4].sum())
True
>>> print(" ".join(sorted(metrics)))  # doctest: +NORMALIZE_WHITESPACE
clip_fraction entropy ess grad_norm logprob_gap loss padding_share ratio_max ratio_mean
sampler_kl skipped skipped_in_a_row tokens

`FullSpec` instead of `LoraSpec` trains every parameter; `from_nnx` takes a Flax NNX module;
`pack_shared` has a prompt computed once for all its answers; `Checkpointer` saves and restores the
state; `make_mesh` and `ShardingRules` spread it over devices, `agree` over hosts.
"""

from .advantages import group_advantages
from .arrays import ArrayDesc, ShardingRules, abstract_arrays, init_arrays, shardings
from .batch import LearnerBatch, PrefixRows, SharedPrefix, Trajectory
from .checkpoint import Checkpointer
from .hosts import agree, batch_digest, from_host_zero, gather
from .learner import make_learner
from .logprobs import SOURCE_TOTALS, token_logprobs
from .lora import LoraPair, lora_linear, lora_pairs, merge_lora
from .losses import LossFn, cispo, dapo, grpo, policy_gradient, sft
from .mesh import make_mesh
from .nnx import from_nnx, nnx_params
from .normalize import Normalize
from .optimizer import make_optimizer, warmup_cosine
from .packing import pack, pack_shared
from .state import Learner, LearnerState, stop_if_stuck
from .trainables import FullSpec, LoraSpec, TrainableSpec

__all__ = [
    "SOURCE_TOTALS",
    "ArrayDesc",
    "Checkpointer",
    "FullSpec",
    "Learner",
    "LearnerBatch",
    "LearnerState",
    "LoraPair",
    "LoraSpec",
    "LossFn",
    "Normalize",
    "PrefixRows",
    "ShardingRules",
    "SharedPrefix",
    "TrainableSpec",
    "Trajectory",
    "abstract_arrays",
    "agree",
    "batch_digest",
    "cispo",
    "dapo",
    "from_host_zero",
    "from_nnx",
    "gather",
    "group_advantages",
    "grpo",
    "init_arrays",
    "lora_linear",
    "lora_pairs",
    "make_learner",
    "make_mesh",
    "make_optimizer",
    "merge_lora",
    "nnx_params",
    "pack",
    "pack_shared",
    "policy_gradient",
    "sft",
    "shardings",
    "stop_if_stuck",
    "token_logprobs",
    "warmup_cosine",
]
