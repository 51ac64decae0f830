"""The queue: bounded, in order, in small batches, and closed without losing anybody."""

import threading
from concurrent.futures import CancelledError

import pytest

from jax_t2sql.grading.requests import Execute
from jax_t2sql.grading.tasks import Task, TaskQueue


def tasks(count):
    return [Task(Execute("x.sqlite", str(i))) for i in range(count)]


def names(taken):
    return [task.request.sql for task in taken]


def test_batches_are_small_and_in_order():
    queue = TaskQueue(capacity=1000, takers=2)
    queue.put(tasks(400))
    taken = queue.take()
    assert names(taken) == [str(i) for i in range(64)]
    seen = len(taken)
    while seen < 400:
        batch = queue.take()
        assert len(batch) <= max(1, (400 - seen) // 4)  # the other taker is left three quarters
        assert names(batch) == [str(i) for i in range(seen, seen + len(batch))]
        seen += len(batch)


def test_what_is_put_back_comes_first():
    queue = TaskQueue(capacity=10, takers=1)
    queue.put(tasks(10))
    taken = queue.take()
    assert len(taken) == 5
    queue.put_back(taken[1:])  # beyond no capacity: never waits
    assert names(queue.take()) == ["1", "2", "3", "4"]


def test_cancelled_tasks_are_passed_over_and_begun_ones_cannot_be():
    queue = TaskQueue(capacity=10, takers=1)
    first, second, third = tasks(3)
    queue.put([first, second, third])
    assert second.future.cancel()
    assert queue.take() == [first]
    assert not first.future.cancel()
    queue.put_back([first])
    assert queue.take() == [first]
    assert queue.take() == [third]


def test_putting_waits_for_room():
    queue = TaskQueue(capacity=2, takers=1)
    done = threading.Event()

    def put():
        queue.put(tasks(5))
        done.set()

    thread = threading.Thread(target=put)
    thread.start()
    taken = []
    while len(taken) < 5:
        assert len(queue._tasks) <= 2
        taken += queue.take()
    thread.join()
    assert done.is_set() and not queue.full and names(taken) == list("01234")


def test_closing_wakes_and_tells_everybody():
    queue = TaskQueue(capacity=2, takers=1)
    waiting, begun, late = tasks(3)
    queue.put([begun])
    assert queue.take() == [begun]
    queue.put([waiting, late])
    errors = []

    def put():
        try:
            queue.put(tasks(1))
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=put)
    thread.start()
    queue.close()
    thread.join()
    assert "closed" in errors[0]
    with pytest.raises(CancelledError):
        waiting.future.result(timeout=0)
    queue.put_back([begun])
    with pytest.raises(RuntimeError, match="closed"):
        begun.future.result(timeout=0)
    assert queue.take() == []
    queue.close()
