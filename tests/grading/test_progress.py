"""The memory that a worker shares with its owner."""

from jax_t2sql.grading.progress import Progress, shared_memory


def test_both_sides_see_the_same():
    with shared_memory() as memory:
        workers, owners = Progress(memory), Progress(memory)
    workers.begin(7, "gold")
    assert (owners.now().serial, owners.now().stage) == (7, "gold")
    assert 0 <= owners.now().seconds < 60
    workers.begin(8, "comparison")
    assert (owners.now().serial, owners.now().stage) == (8, "comparison")


def test_a_cut_holds_for_its_batch_alone():
    with shared_memory() as memory:
        workers, owners = Progress(memory), Progress(memory)
    assert not any(workers.is_cut(1, serial) for serial in range(1, 6))
    owners.cut(4)
    workers.begin(3, "gold")
    assert [workers.is_cut(1, serial) for serial in range(1, 6)] == [False] * 3 + [True] * 2
    assert not any(workers.is_cut(6, serial) for serial in range(6, 9))
