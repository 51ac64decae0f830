"""A worker's place in the pool: it outlives the process that sits in it."""

import contextlib
import queue
import threading
from concurrent.futures import Future
from dataclasses import dataclass

from jax_t2sql.errors import UserError
from jax_t2sql.grading.process import WorkerDied, WorkerProcess, WorkerStuck
from jax_t2sql.grading.requests import Execute, Failed, Request, Settings, Stage
from jax_t2sql.grading.verdict import Verdict
from jax_t2sql.sql import Limits, Outcome

_ATTEMPTS = 2  # a request whose worker dies is tried once more, on a new one
_START_ATTEMPTS = 3


@dataclass(frozen=True)
class Task:
    """A request, and the future that its answer completes."""

    request: Request
    future: Future


class Seat:
    """A thread and the worker process that it feeds; the process may be replaced."""

    def __init__(self, settings: Settings, tasks: queue.SimpleQueue) -> None:
        self._settings = settings
        self._tasks = tasks
        self._lock = threading.Lock()  # guards the three below
        self._stopped = False
        self._worker: WorkerProcess | None = WorkerProcess(settings)
        self._ready = False
        self.thread = threading.Thread(target=self._serve, name="grading", daemon=True)
        self.thread.start()

    @property
    def pid(self) -> int | None:
        """Process id of the worker, if there is one."""
        with self._lock:
            return self._worker.pid if self._worker else None

    def stop(self) -> None:
        """Ends the process, and soon the thread."""
        with self._lock:
            self._stopped = True
            if self._worker:
                self._worker.kill()

    def _serve(self) -> None:
        while True:
            task = self._tasks.get()
            if task is None or self._stopped:
                if task:
                    task.future.cancel()
                break
            if not task.future.set_running_or_notify_cancel():
                continue
            try:
                answer = self._answer(task.request)
            except _Stopped:
                task.future.set_exception(RuntimeError("the grading pool was closed meanwhile"))
                break
            except Exception as error:
                task.future.set_exception(error)
            else:
                task.future.set_result(answer)
            with contextlib.suppress(OSError):  # the next request tries again, and reports it
                self._process()
        self._discard()

    def _answer(self, request: Request) -> Outcome | Verdict:
        for _ in range(_ATTEMPTS):
            try:
                answer = self._ready_worker().ask(request)
            except WorkerStuck as stuck:
                self._discard()
                return _stuck(request, stuck.stage, self._settings.limits)
            except WorkerDied as death:
                self._discard()
                cause = str(death)
                continue
            return _unfailed(request, answer)
        return _dead(request, cause)

    def _ready_worker(self) -> WorkerProcess:
        """The process, when it takes requests."""
        for _ in range(_START_ATTEMPTS):
            try:
                worker = self._process()
                if worker is None:
                    raise _Stopped
                if not self._ready:
                    worker.wait_ready()
                    self._ready = True
                return worker
            except WorkerDied as death:
                self._discard()
                cause = str(death)
        raise OSError(
            f"a grading worker does not start ({cause}); its standard error says why."
            f" Memory given to it: {self._settings.memory_bytes:,} bytes"
        )

    def _process(self) -> WorkerProcess | None:
        """The process, started anew if there is none; None once this seat has stopped."""
        with self._lock:
            if self._stopped:
                return None
            if self._worker is None:
                self._worker = WorkerProcess(self._settings)
            return self._worker

    def _discard(self) -> None:
        with self._lock:
            worker, self._worker, self._ready = self._worker, None, False
        if worker:
            worker.close()


class _Stopped(Exception):
    """The pool is being closed."""


def shut_down(tasks: queue.SimpleQueue, seats: list[Seat]) -> None:
    """Ends all seats: processes killed, waiting futures cancelled, threads joined."""
    for seat in seats:
        seat.stop()
    with contextlib.suppress(queue.Empty):
        while True:
            task = tasks.get_nowait()
            if task:
                task.future.cancel()
    for _ in seats:
        tasks.put(None)
    for seat in seats:
        if seat.thread is not threading.current_thread():
            seat.thread.join()


def _stuck(request: Request, stage: Stage, limits: Limits) -> Outcome | Verdict:
    """What a request comes to whose worker had to be killed."""
    seconds = limits.seconds
    detail = f"stopped after {seconds:g} s, stuck inside one step of SQLite"
    if isinstance(request, Execute):
        return Outcome("timeout", message=detail, seconds=seconds)
    match stage:
        case "gold":
            return Verdict("gold_error", f"the gold query was {detail}")
        case "probe":
            return Verdict("infrastructure", f"a query known to be good was {detail}")
        case "comparison":
            return Verdict("too_large", f"the results take more than {seconds:g} s to compare")
        case "prediction":
            return Verdict("timeout", detail, seconds)


def _dead(request: Request, cause: str) -> Outcome | Verdict:
    """What a request comes to that two workers did not survive."""
    detail = f"the process that ran this died twice ({cause})"
    if isinstance(request, Execute):
        return Outcome("error", message=detail)
    return Verdict("infrastructure", detail)


def _unfailed(request: Request, answer: Outcome | Verdict | Failed) -> Outcome | Verdict:
    """The answer, with a failure in the worker raised or told as a verdict."""
    if not isinstance(answer, Failed):
        return answer
    if not isinstance(request, Execute):
        return Verdict("infrastructure", answer.message)
    raise UserError(answer.message) if answer.is_users else RuntimeError(answer.message)
