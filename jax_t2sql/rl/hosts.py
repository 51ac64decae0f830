"""One mind over several hosts: host 0 says what comes next, and all do it together.

Before everything that needs all hosts (an update, a checkpoint, an export) host 0 announces it;
while it waits for groups it announces that, so that the others never hang in a collective, and a
host that was told to end can say so. With one host nothing is sent.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import numpy as np

from jax_t2sql.errors import UserError
from jax_t2sql.learner import from_host_zero, gather

T = TypeVar("T")

_BYTES = 1024
_STOP = b"stop"


@dataclass(frozen=True)
class Order:
    """What all hosts do next. kind: wait, restore, update, save, export, end or fail."""

    kind: str
    details: dict[str, Any]
    stop: bool


@dataclass(frozen=True)
class Hosts:
    """This host among all of a run."""

    index: int = 0
    count: int = 1

    @property
    def leads(self) -> bool:
        """Only host 0 decides and writes."""
        return self.index == 0

    def announce(self, kind: str, *, stop: bool, details: dict[str, Any]) -> bool:
        """Host 0 says what comes next. True: a host, this one included, was told to end."""
        if self.count == 1:
            return stop
        # Its own wish to end goes with the order, so that no host acts on it a step early.
        order = json.dumps({"kind": kind, "details": details, "stop": stop}).encode()
        return stop or _STOP in gather(order, size=_BYTES)[1:]

    def next_order(self, *, stop: bool) -> Order:
        """The other hosts wait for what comes next. stop: this one was told to end."""
        orders = gather(_STOP if stop else b"", size=_BYTES)
        order = json.loads(orders[0])
        return Order(order["kind"], order["details"], order["stop"] or _STOP in orders[1:])

    def whole(self, tree: Any) -> Any:
        """Arrays that are spread over hosts, whole on each of them; others as they are."""
        if self.count == 1:
            return tree
        from jax.experimental import multihost_utils

        return jax.tree.map(
            lambda x: np.asarray(multihost_utils.process_allgather(x, tiled=True)), tree
        )

    def all_well(self, check: Callable[[], T]) -> T:
        """What `check` gives on this host, once it has gone well on all of them.

        Raises:
          UserError: a host's; with several hosts one that names all it went wrong on.
        """
        if self.count == 1:
            return check()
        found, problem = None, b""
        try:
            found = check()
        except (OSError, UserError) as error:
            problem = str(error).encode()[:_BYTES]
        problems = gather(problem, size=_BYTES)
        if faults := [(i, p.decode(errors="replace")) for i, p in enumerate(problems) if p]:
            lines = "; ".join(f"host {index}: {text}" for index, text in faults)
            raise UserError(f"{lines}. All hosts stop: mend this, then start all again")
        return found

    def share(self, text: str) -> str:
        """Host 0's text, on all hosts."""
        return from_host_zero(text.encode()).decode()
