"""What every host of a run trains with."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jax_t2sql.assembly import Run
from jax_t2sql.learner import Checkpointer, Learner, LearnerState, TrainableSpec
from jax_t2sql.rl.hosts import Hosts
from jax_t2sql.rl.preemption import Preemption


@dataclass(kw_only=True)
class Trainer:
    """Model, learner and state of one host; `state` and `version` change as the run goes on.

    Attributes:
      export: writes trained weights as files into a folder.
      say: shows the user one line.
      version: updates applied.
      seconds: spent in each part since the last step.
      interrupted: a host was told to end, and all know: they stop after the present step.
    """

    run: Run
    learner: Learner
    spec: TrainableSpec
    state: LearnerState
    checkpointer: Checkpointer
    export: Callable[[LearnerState, Path], None]
    say: Callable[[str], None]
    hosts: Hosts = field(default_factory=Hosts)
    preemption: Preemption = field(default_factory=Preemption)
    version: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def base(self) -> Any:
        """The frozen weights."""
        return self.run.model.params

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Counts the time inside as spent in a part of the step."""
        started = time.perf_counter()
        yield
        self.spend(name, time.perf_counter() - started)

    def spend(self, name: str, seconds: float) -> None:
        """Counts time spent in a part of the step."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def announce(self, order: str, **details: Any) -> None:
        """Host 0: tells the others what comes next, and learns whether one was told to end."""
        self.interrupted |= self.hosts.announce(
            order, stop=self.preemption.requested, details=details
        )

    def whole_state(self) -> LearnerState:
        """Host 0: the state with the trained arrays whole, as files are written from it."""
        self.announce("export")
        trainable = self.hosts.whole(self.state.trainable)
        return dataclasses.replace(self.state, trainable=trainable)
