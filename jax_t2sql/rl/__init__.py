"""The reinforcement-learning loop over the bus.

A step issues tasks (`tasks`), takes the groups that arrived (`take`), logs the batch, updates
(`update`), checkpoints and publishes (`checkpoints`), in the order of
`jax_t2sql.bus.learner_side`; so a run that is killed at any point goes on where the log says.
Where groups come from is a `Sampling`: `inline` samples in this process, `fleet` waits for others.
What else happens after a step, a publish or an evaluation is hung into `Loop.hooks`, as `Watch` is;
which questions are asked is a `TaskSource`, `Draws`. Of several hosts one leads, the others
`follow`.
"""

from jax_t2sql.rl.checkpoints import restore
from jax_t2sql.rl.draws import Draws
from jax_t2sql.rl.fleet import FleetSampling
from jax_t2sql.rl.follow import follow
from jax_t2sql.rl.gate import LengthGate
from jax_t2sql.rl.hosts import Hosts
from jax_t2sql.rl.inline import InlineSampling
from jax_t2sql.rl.loop import Hooks, Loop, Sampling, Step
from jax_t2sql.rl.preemption import Preemption
from jax_t2sql.rl.steps import train
from jax_t2sql.rl.tasks import Feed, TaskSource
from jax_t2sql.rl.trainer import Trainer
from jax_t2sql.rl.watch import Watch

__all__ = [
    "Draws",
    "Feed",
    "FleetSampling",
    "Hooks",
    "Hosts",
    "InlineSampling",
    "LengthGate",
    "Loop",
    "Preemption",
    "Sampling",
    "Step",
    "TaskSource",
    "Trainer",
    "Watch",
    "follow",
    "restore",
    "train",
]
