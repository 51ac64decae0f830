"""SIGTERM, as a scheduler sends it before it takes the machine away."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

_GRACE_SECONDS = 22.0


class Preempted(BaseException):
    """Raised inside `Preemption.abortable`, where what is given up is worth nothing."""


class Preemption:
    """Notes the first SIGTERM while it is entered; a second one ends the process at once.

    What is under way is finished, a checkpoint and a publish follow. If that takes longer than
    `seconds`, the process ends all the same: what the log holds is trained again by the next one.
    """

    def __init__(self, *, seconds: float = _GRACE_SECONDS):
        self.requested = False
        self._seconds = seconds
        self._abortable = False
        self._before: signal.Handlers | None = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> "Preemption":
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
            self._before = signal.signal(signal.SIGTERM, self._told)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    @contextlib.contextmanager
    def abortable(self) -> Iterator[None]:
        """What runs inside may be broken off: Preempted is raised, now or when the signal comes."""
        if self.requested:
            raise Preempted
        self._abortable = True
        try:
            yield
        finally:
            self._abortable = False

    def _told(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            os._exit(128 + number)
        self.requested = True
        self._timer = threading.Timer(self._seconds, _give_up)
        self._timer.daemon = True
        self._timer.start()
        if self._abortable:
            self._abortable = False
            raise Preempted


def _give_up() -> None:
    sys.stderr.write(
        "SIGTERM: the step under way takes too long, so the process ends without a checkpoint of"
        " it; the same command goes on from the last one, and loses nothing that is in the log\n"
    )
    sys.stderr.flush()
    os._exit(128 + signal.SIGTERM)
