"""A worker's share of the memory."""

import pytest

from jax_t2sql.grading import GradingPool, memory


@pytest.mark.parametrize(
    ("machine", "workers", "share"),
    [(64, 2, 4), (64, 16, 2), (8, 2, 2), (8, 64, 0.5), (1, 1, 0.5)],
)
def test_half_of_the_machine_is_divided(monkeypatch, machine, workers, share):
    monkeypatch.setattr(memory, "machine_memory", lambda: machine * 2**30)
    assert memory.worker_memory(workers) == share * 2**30


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/job/step\n", {"job/memory.max": "3000", "job/step/memory.max": "max"}, 3000),
        ("0::/\n", {"memory.max": "5000\n"}, 5000),
        ("9:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "7000"}, 7000),
        ("4:cpu,memory:/\n", {"memory/memory.limit_in_bytes": "800"}, 800),
        ("4:cpu:/a\n", {"memory/a/memory.limit_in_bytes": "800"}, None),
        ("", {}, None),
        (None, {}, None),
    ],
)
def test_a_container_has_what_it_is_given(tmp_path, groups, files, limit):
    if groups is not None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    found = memory.machine_memory(tmp_path)
    assert found == limit if limit else found > 2**20


def test_a_pool_takes_its_share(monkeypatch, shop):
    """300 MB are too much for SQLite on a small machine, and not where it may take 2 GiB."""
    monkeypatch.setattr("jax_t2sql.grading.memory.machine_memory", lambda: 2 * 2**30)
    query = (
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 300),"
        " m AS MATERIALIZED (SELECT n, zeroblob(1000000) AS b FROM r)"
        " SELECT count(*) FROM m, m AS o WHERE m.n = 1"
    )
    found = []
    for memory_bytes in (None, 4 * 2**30):
        with GradingPool(2, memory_bytes=memory_bytes) as pool:
            found.append(pool.execute(shop, query).result().status)
    assert found == ["too_large", "ok"]
