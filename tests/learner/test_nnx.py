import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from test_learner import keep_gradient

from jax_t2sql.learner import (
    FullSpec,
    LoraSpec,
    Trajectory,
    cispo,
    from_nnx,
    lora_linear,
    make_learner,
    merge_lora,
    nnx_params,
    pack,
    sft,
)


class Model(nnx.Module):
    """A language model without attention: each token sees itself, which is causal enough."""

    def __init__(self, rngs: nnx.Rngs):
        self.embed = nnx.Embed(11, 8, rngs=rngs)
        self.blocks = nnx.List([nnx.Linear(8, 8, rngs=rngs) for _ in range(2)])
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.lm_head = nnx.Linear(8, 11, use_bias=False, rngs=rngs)

    def hidden(self, tokens_BT, positions_BT, segments_BT):
        x_BTD = self.embed(tokens_BT)
        for block in self.blocks:
            x_BTD += jnp.tanh(self.dropout(block(x_BTD)))
        return x_BTD

    def unembed(self, hidden_ND):
        return self.lm_head(hidden_ND)


def hidden_fn(base, adapter, tokens_BT, positions_BT, segments_BT):
    x_BTD = base["embed"]["embedding"][tokens_BT]
    for i, block in base["blocks"].items():
        x_BTD += jnp.tanh(lora_linear(x_BTD, block["kernel"], adapter["blocks"][i]) + block["bias"])
    return x_BTD


def unembed_fn(base, adapter, hidden_ND):
    return hidden_ND @ base["lm_head"]["kernel"]


@pytest.fixture
def model():
    module = Model(nnx.Rngs(0))
    module.eval()
    return module


BATCH = pack(
    [Trajectory([1, 2, 3, 4, 5], [0, 0, 1, 1, 1], np.full(5, -2.0), 1.0)],
    row_length=8,
    rows_per_microbatch=1,
)


def test_a_module_learns_like_the_same_model_as_functions(model):
    spec = LoraSpec(rank=2, alpha=4)
    options = dict(adapter=spec, loss=cispo(), optimizer=keep_gradient())
    base = nnx_params(model)
    gradients = []
    for learner in (
        from_nnx(model, hidden=Model.hidden, unembed=Model.unembed, **options),
        make_learner(hidden_fn, unembed_fn, **options),
    ):
        state, metrics = learner.update(base, learner.init(base, jax.random.key(0)), BATCH)
        gradients.append(state.opt_state)
    assert optax.tree.norm(gradients[0]) > 0.01
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6), *gradients)


@pytest.mark.parametrize("spec", [LoraSpec(rank=4), FullSpec()], ids=["lora", "full"])
def test_the_module_can_be_updated_with_what_was_learned(model, spec):
    learner = from_nnx(
        model,
        hidden=Model.hidden,
        unembed=Model.unembed,
        adapter=spec,
        loss=sft(),
        optimizer=optax.adam(3e-2),
    )
    base = nnx_params(model)
    state = learner.init(base, jax.random.key(0))
    for _ in range(40):
        state, metrics = learner.update(base, state, BATCH)
    assert metrics["loss"] < 0.5
    learned = state.trainable if spec == FullSpec() else merge_lora(base, state.trainable)
    nnx.update(model, learned)
    logits_TV = model.unembed(model.hidden(jnp.array([[1, 2, 3, 4]]), None, None)[0])
    assert logits_TV[1:].argmax(-1).tolist() == [3, 4, 5]
