"""The requests that wait for a worker: bounded, in order, taken in batches."""

import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field

from jax_t2sql.grading.requests import Request

# A message between processes costs as much as a small query, so queries share messages.
_BATCH = 64


@dataclass(eq=False)
class Task:
    """A request on its way.

    Attributes:
      request: what to do.
      future: completed by the answer.
      deaths: how many workers have ended while they were at it.
      begun: whether it has been given to a worker; then it can no longer be cancelled.
    """

    request: Request
    future: Future = field(default_factory=Future)
    deaths: int = 0
    begun: bool = False

    def begin(self) -> bool:
        """Whether it is to be done: it has not been cancelled."""
        self.begun = self.begun or self.future.set_running_or_notify_cancel()
        return self.begun

    def abandon(self) -> None:
        """Tells whoever waits for it that nobody will do it."""
        if not self.future.cancel():
            self.future.set_exception(RuntimeError("the grading pool was closed meanwhile"))


class TaskQueue:
    """First in, first out; putting waits while too many are waiting."""

    def __init__(self, *, capacity: int, takers: int) -> None:
        self._capacity = capacity
        self._takers = takers
        self._tasks: deque[Task] = deque()
        self._closed = False
        lock = threading.Lock()
        self._filled, self._room = threading.Condition(lock), threading.Condition(lock)

    @property
    def full(self) -> bool:
        """Whether putting would wait."""
        return len(self._tasks) >= self._capacity

    def put(self, tasks: Iterable[Task]) -> None:
        """Adds tasks, waiting for room where there is none.

        Raises:
          RuntimeError: the queue is closed.
        """
        with self._room:
            for task in tasks:
                while len(self._tasks) >= self._capacity and not self._closed:
                    self._filled.notify_all()
                    self._room.wait()
                if self._closed:
                    raise RuntimeError("this grading pool is closed; make a new one")
                self._tasks.append(task)
            self._filled.notify_all()

    def put_back(self, tasks: Iterable[Task]) -> None:
        """Puts tasks that were taken before all others again. Never waits."""
        tasks = list(tasks)
        with self._filled:
            if not self._closed:
                self._tasks.extendleft(reversed(tasks))
                self._filled.notify_all()
                return
        for task in tasks:
            task.abandon()

    def take(self) -> list[Task]:
        """The next few tasks, begun, as soon as there are any; none once the queue is closed.

        A small part of what waits, so that no taker gets the work of two; tasks for the same gold
        come one after the other and mostly stay together.
        """
        while True:
            with self._filled:
                while not self._tasks and not self._closed:
                    self._filled.wait()
                if self._closed:
                    return []
                count = min(_BATCH, max(1, len(self._tasks) // (2 * self._takers)))
                taken = [self._tasks.popleft() for _ in range(count)]
                self._room.notify_all()
            taken = [task for task in taken if task.begin()]
            if taken:
                return taken

    def close(self) -> None:
        """Lets nothing in or out any more, and abandons what waits. Idempotent."""
        with self._filled:
            self._closed = True
            left = list(self._tasks)
            self._tasks.clear()
            self._filled.notify_all()
            self._room.notify_all()
        for task in left:
            task.abandon()
