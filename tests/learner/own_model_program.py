"""A worked example: your own Flax NNX module, or your own plain functions, learn from a reward.

Eight devices share the work. The task is to answer each prompt of one token with that token. Run
it with `XLA_FLAGS=--xla_force_host_platform_device_count=8 python own_model_program.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jax_t2sql.learner import (
    FullSpec,
    LoraSpec,
    Trajectory,
    cispo,
    from_nnx,
    group_advantages,
    lora_linear,
    make_learner,
    make_mesh,
    merge_lora,
    nnx_params,
    pack,
)

VOCAB, WIDTH, PROMPTS, GROUP = 6, 16, 12, 8
mesh = make_mesh(data=4, fsdp=2)


class OwnModule(nnx.Module):
    """Any module will do; the learner wants hidden states and, apart from them, logits."""

    def __init__(self, rngs: nnx.Rngs):
        self.embed = nnx.Embed(VOCAB, WIDTH, rngs=rngs)
        self.mix = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.lm_head = nnx.Linear(WIDTH, VOCAB, use_bias=False, rngs=rngs)

    def hidden(self, tokens_BT, positions_BT, segments_BT):
        return jnp.tanh(self.mix(self.embed(tokens_BT)))

    def unembed(self, hidden_ND):
        return self.lm_head(hidden_ND)


def own_hidden(base, adapter, tokens_BT, positions_BT, segments_BT):
    """Any pure function will do; `lora_linear` is where an adapter comes in."""
    x_BTD = base["embed"]["embedding"][tokens_BT]
    return jnp.tanh(lora_linear(x_BTD, base["mix"]["kernel"], adapter["mix"]))


def own_unembed(base, adapter, hidden_ND):
    return lora_linear(hidden_ND, base["lm_head"]["kernel"], adapter["lm_head"])


def learn(learner, base, logits_of, steps=40):
    """Samples, rewards, updates; returns the mean reward before each update."""
    state, key, rewards = learner.init(base, jax.random.key(1)), jax.random.key(2), []
    prompts_P = np.arange(PROMPTS) % VOCAB
    for _ in range(steps):
        key, draw = jax.random.split(key)
        log_softmax_PV = jax.nn.log_softmax(logits_of(state.trainable, prompts_P))
        shape = PROMPTS, GROUP
        answers_PG = np.asarray(jax.random.categorical(draw, log_softmax_PV[:, None], shape=shape))
        logprobs_PV, trajectories = np.asarray(log_softmax_PV), []
        reward_PG = (answers_PG == prompts_P[:, None]).astype(float)
        for prompt, answers_G, reward_G, logprobs_V in zip(
            prompts_P, answers_PG, reward_PG, logprobs_PV, strict=True
        ):
            advantages_G, _ = group_advantages(reward_G)
            trajectories += [
                Trajectory([prompt, answer], [False, True], [0.0, logprobs_V[answer]], advantage)
                for answer, advantage in zip(answers_G, advantages_G, strict=True)
            ]
        batch = pack(trajectories, row_length=8, rows_per_microbatch=8)
        state, metrics = learner.update(base, state, batch)
        assert abs(float(metrics["ratio_mean"]) - 1.0) < 1e-3  # sampler and learner agree
        rewards.append(reward_PG.mean())
    return state, rewards


def main():
    options = dict(loss=cispo(low=0.0, high=4.0), optimizer=optax.adam(5e-2), mesh=mesh)

    module = OwnModule(nnx.Rngs(0))
    learner = from_nnx(
        module, hidden=OwnModule.hidden, unembed=OwnModule.unembed, adapter=FullSpec(), **options
    )

    @jax.jit
    def module_logits(params, tokens_P):
        graph, state = nnx.split(module)
        nnx.replace_by_pure_dict(state, params)
        own = nnx.merge(graph, state)
        return own.unembed(own.hidden(tokens_P[None], None, None)[0])

    state, rewards = learn(learner, nnx_params(module), module_logits)
    print("module", rewards[0], rewards[-1])
    nnx.update(module, state.trainable)  # the module has learned

    base = jax.device_put(jax.tree.map(np.asarray, nnx_params(OwnModule(nnx.Rngs(0)))))
    learner = make_learner(
        own_hidden, own_unembed, adapter=LoraSpec(("mix", "lm_head"), rank=4), **options
    )

    @jax.jit
    def function_logits(adapter, tokens_P):
        hidden_PD = own_hidden(base, adapter, tokens_P[None], None, None)[0]
        return own_unembed(base, adapter, hidden_PD)

    state, rewards = learn(learner, base, function_logits)
    print("functions", rewards[0], rewards[-1])
    merged = merge_lora(base, state.trainable)  # one tree of weights, should you want it
    assert merged["mix"]["kernel"].shape == (WIDTH, WIDTH)


if __name__ == "__main__":
    main()
