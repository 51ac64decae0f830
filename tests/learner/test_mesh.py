"""Eight virtual devices in a process of their own: the count is fixed when JAX starts."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from jax_t2sql.learner import ArrayDesc, ShardingRules, make_mesh

HERE = Path(__file__).parent
MESH = """
import jax, numpy as np, optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import tiny_transformer as tiny
from jax_t2sql.learner import *

mesh = jax.make_mesh((2, 2, 2, 1), ("data", "fsdp", "tensor", "expert"),
                     axis_types=(AxisType.Auto,) * 4)
base = tiny.init_base()
AXES = {"embedding": (None, "embed"), "qkv": ("layers", "embed", "heads"),
        "out": ("layers", "heads", "embed"), "mix": ("layers", "embed", "mlp"),
        "norm": ("layers", "embed"), "lm_head": ("embed", None)}

def describe(path, x):
    axes = next(axes for name, axes in AXES.items() if name in jax.tree_util.keystr(path))
    return ArrayDesc(x.shape, x.dtype, axes, None)

base_desc = jax.tree_util.tree_map_with_path(describe, base)
batch = pack(tiny.trajectories((9, 3, 12, 5, 7, 12, 2, 6)), row_length=12, rows_per_microbatch=4)

def learn(adapter, base, **options):
    learner = make_learner(tiny.hidden_fn, tiny.unembed_fn, adapter=adapter,
                           loss=cispo(low=0.2, high=3.0), optimizer=optax.sgd(0.01, 0.9), **options)
    state = learner.init(base, jax.random.key(0))
    for _ in range(2):
        state, metrics = learner.update(base, state, batch)
    return learner, state, metrics, learner.logprobs(base, state, batch)

for adapter in (LoraSpec(rank=2), FullSpec()):
    _, *single = learn(adapter, base)
    placed = jax.device_put(base, shardings(base_desc, mesh, ShardingRules()))
    learner, *spread = learn(adapter, placed, mesh=mesh, base_desc=base_desc)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5),
                 spread, single)
    mix = spread[0].trainable["layers"]["mix"]
    mix = mix.b if isinstance(adapter, LoraSpec) else mix["kernel"]
    embed = None if isinstance(adapter, LoraSpec) else "fsdp"
    assert mix.sharding.spec == P(None, embed, "tensor"), mix.sharding
    momentum = spread[0].opt_state[0].trace["layers"]["mix"]
    momentum = momentum.b if isinstance(adapter, LoraSpec) else momentum["kernel"]
    assert momentum.sharding == mix.sharding
    directory = f"{DIRECTORY}/{type(adapter).__name__}"
    with Checkpointer(directory) as checkpointer:
        checkpointer.save(3, spread[0], {})
        state, _ = checkpointer.restore(learner.abstract_state(placed))
    jax.tree.map(np.testing.assert_array_equal, state, spread[0])
    assert jax.tree.map(lambda x: x.sharding, state) == jax.tree.map(
        lambda x: x.sharding, spread[0])

_, *plain = learn(FullSpec(), base, mesh=mesh)  # no descriptions: everything replicated
jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5), plain, single)

try:
    learner.update(placed, state, pack(tiny.trajectories((4,)), row_length=8,
                                       rows_per_microbatch=3))
except ValueError as error:
    print("refused:", error)
"""


@pytest.mark.multi_device
def test_eight_devices_learn_what_one_does(tmp_path):
    env = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        # Level 0 halves the time to compile, which is most of this test.
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0",
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])]),
    }
    done = subprocess.run(
        [sys.executable, "-c", f"DIRECTORY = {str(tmp_path)!r}\n{MESH}"],
        capture_output=True,
        text=True,
        env=env,
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr
    assert "refused: micro-batches of 3 rows" in done.stdout and "a multiple of 4" in done.stdout


def desc(*axes, shape=None):
    shape = shape or (4,) * len(axes)
    return ArrayDesc(shape, jnp.float32, axes, jax.nn.initializers.zeros)


def test_two_axes_of_an_array_never_share_a_mesh_axis():
    rules = ShardingRules(embed="tensor")
    with pytest.raises(ValueError, match="'embed' and 'mlp' .* mesh axis 'tensor'"):
        rules.spec(("embed", "mlp"))
    with pytest.raises(ValueError, match="'batch' and 'embed' .* mesh axis 'fsdp'"):
        ShardingRules().spec(("batch", "embed"))


def test_unknown_axes_and_uneven_dimensions_are_named():
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    with pytest.raises(ValueError, match="no sharding rule for logical axis 'embedd'"):
        ShardingRules().spec(("embedd",))
    with pytest.raises(ValueError, match="'mlp' maps to mesh axis 'tensor'.*only \\('data',\\)"):
        ShardingRules().sharding(desc("mlp"), mesh)
    two = jax.sharding.AbstractMesh((2,), ("tensor",))
    with pytest.raises(ValueError, match="'mlp' .* shape \\(3,\\) has 3 elements.* 2 shards"):
        ShardingRules().sharding(desc("mlp", shape=(3,)), two)


def test_an_axis_name_for_every_dimension():
    with pytest.raises(ValueError, match=r"shape \(4, 4\) needs 2 axis names, got \('mlp',\)"):
        desc("mlp", shape=(4, 4))


def test_meshes_that_do_not_fit_the_devices_are_refused():
    devices = jax.devices()[:1]
    assert set(make_mesh(tensor=-1, fsdp=1, devices=devices).shape.values()) == {1}
    for sizes in (dict(tensor=3), dict(data=0), dict(data=-1), dict(fsdp=2)):
        with pytest.raises(ValueError, match="does not fit 1 devices"):
            make_mesh(**sizes, devices=devices)
