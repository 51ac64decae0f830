"""A worker's place in the pool: it outlives the process that sits in it."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Sequence

from jax_t2sql.grading.equivalence import seconds_until_stuck
from jax_t2sql.grading.fates import unfailed, when_dead, when_stuck
from jax_t2sql.grading.process import WorkerDied, WorkerProcess
from jax_t2sql.grading.requests import CheckEquivalence, Probe, Request, Settings, Stage
from jax_t2sql.grading.tasks import Task, TaskQueue

_ATTEMPTS = 2  # a request whose worker dies is tried once more, on a new one
# A worker that ends by itself while it starts will do so again; one that is killed may not.
_START_ATTEMPTS = 3
_KILLED_START_ATTEMPTS = 20
# A query's own time limit and this much more: then it is stuck inside one SQLite step.
_GRACE_SECONDS = 0.6
# How often a busy worker is looked at. One at a long query gives up the rest of its batch.
_LOOK_SECONDS = 0.1


class Seat:
    """A thread and the worker process that it feeds; the process may be replaced."""

    def __init__(self, settings: Settings, tasks: TaskQueue) -> None:
        self._settings = settings
        self._tasks = tasks
        self._lock = threading.Lock()  # guards the three below
        self._stopped = False
        self._worker: WorkerProcess | None = WorkerProcess(settings)
        self._ready = False
        self._longest_check = 0.0  # that any task given to this seat may take
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
        while tasks := self._tasks.take():
            waiting = deque(tasks)
            try:
                self._work(self._ready_worker(), waiting)
            except _Stopped:
                for task in waiting:
                    task.abandon()
                break
            except Exception as error:
                for task in waiting:
                    task.future.set_exception(error)
        self._discard()

    def _work(self, worker: WorkerProcess, waiting: deque[Task]) -> None:
        """Has tasks done; each is taken out of `waiting` when it is done or back in the queue."""
        serial = None
        checks = [t.request for t in waiting if isinstance(t.request, CheckEquivalence)]
        self._longest_check = max([self._longest_check, *map(seconds_until_stuck, checks)])
        try:
            serial = worker.send([task.request for task in waiting])  # of the first that waits
            sent = time.monotonic()
            while waiting:
                answers = worker.receive(_LOOK_SECONDS)
                for number, answer in answers:
                    if waiting and number == serial:  # else it was cut off, and done all the same
                        _finish(waiting.popleft(), answer)
                        serial += 1
                if waiting and not answers:
                    self._look_at(worker, waiting, serial, sent)
        except WorkerDied as death:
            work = worker.work()
            self._replace()
            # With none begun, the first is the suspect: else a request that cannot even be sent
            # would be sent for ever.
            place = None if serial is None else _place(work.serial, serial, waiting)
            task = waiting[place or 0]
            task.deaths += 1
            if task.deaths >= _ATTEMPTS:
                self._settle(task, when_dead(task.request, work.stage, str(death)), waiting)
            self._put_back(waiting, 0)

    def _look_at(
        self, worker: WorkerProcess, waiting: deque[Task], serial: int, sent: float
    ) -> None:
        """Deals with a worker that has not answered for a while."""
        work = worker.work()
        place = _place(work.serial, serial, waiting)
        if place is None:
            # Still at a query of an earlier batch, which has been cut off. Whatever its end is,
            # nobody here is to blame.
            longest = max(self._settings.gold_limits.seconds, self._longest_check)
            if time.monotonic() - sent > longest + _GRACE_SECONDS:
                self._replace()
                self._put_back(waiting, 0)
            return
        seconds = self._seconds(waiting[place].request, work.stage)
        if work.seconds > seconds + _GRACE_SECONDS:
            # Looked at twice, lest it was just about to begin the next.
            again = worker.work()
            if again.serial == work.serial and again.seconds >= work.seconds:
                self._replace()
                task = waiting[place]
                self._settle(task, when_stuck(task.request, work.stage, seconds), waiting)
                self._put_back(waiting, 0)
        elif work.seconds > _LOOK_SECONDS and place + 1 < len(waiting):
            worker.cut(work.serial + 1)
            self._put_back(waiting, place + 1)

    def _settle(self, task: Task, fate: object, waiting: deque[Task]) -> None:
        """Completes a task with an answer, or gives it another request that will find one."""
        if isinstance(fate, Probe):
            task.request, task.deaths = fate, 0
        else:
            waiting.remove(task)
            _finish(task, fate)

    def _put_back(self, waiting: deque[Task], start: int) -> None:
        back = [waiting.pop() for _ in range(len(waiting) - start)]
        self._tasks.put_back(reversed(back))

    def _seconds(self, request: Request, stage: Stage) -> float:
        """How long a stage of a request may take by the clock."""
        if isinstance(request, CheckEquivalence):
            return seconds_until_stuck(request)
        settings = self._settings
        return (settings.gold_limits if stage in ("gold", "probe") else settings.limits).seconds

    def _ready_worker(self) -> WorkerProcess:
        """The process, when it takes requests."""
        ended = killed = 0
        while ended < _START_ATTEMPTS and killed < _KILLED_START_ATTEMPTS:
            try:
                worker = self._process()
                if worker is None:
                    raise _Stopped
                if not worker.alive:  # killed while idle: no fault of what comes next
                    raise worker.death()
                if not self._ready:
                    worker.wait_ready()
                    self._ready = True
                return worker
            except WorkerDied as death:
                self._discard()
                ended, killed = ended + (not death.killed), killed + death.killed
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

    def _replace(self) -> None:
        self._discard()
        with contextlib.suppress(OSError):  # the next batch tries again, and reports it
            self._process()

    def _discard(self) -> None:
        with self._lock:
            worker, self._worker, self._ready = self._worker, None, False
        if worker:
            worker.close()


class _Stopped(Exception):
    """The pool is being closed."""


def _place(working: int, first: int, waiting: Sequence[Task]) -> int | None:
    """Index among the waiting tasks of the one that is worked at, if it is among them."""
    place = working - first
    return place if 0 <= place < len(waiting) else None


def _finish(task: Task, answer: object) -> None:
    try:
        result = unfailed(task.request, answer)
    except Exception as error:
        task.future.set_exception(error)
    else:
        task.future.set_result(result)


def shut_down(tasks: TaskQueue, seats: Sequence[Seat]) -> None:
    """Ends all seats: processes killed, waiting futures cancelled, threads joined."""
    for seat in seats:
        seat.stop()
    tasks.close()
    for seat in seats:
        if seat.thread is not threading.current_thread():
            seat.thread.join()
