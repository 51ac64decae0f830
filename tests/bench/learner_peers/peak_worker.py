"""What the machine gives at best just now: a large fp32 matrix product by jitted XLA."""

import jax
import jax.numpy as jnp
from worker import serve

SIDE, TIMES = 2_048, 4
GFLOP = TIMES * 2 * SIDE**3 / 1e9
left, right = jax.random.normal(jax.random.key(0), (2, SIDE, SIDE))
product = jax.jit(jnp.matmul)


def update() -> float:
    for _ in range(TIMES):
        product(left, right).block_until_ready()
    return 0.0


if __name__ == "__main__":
    serve(update)
