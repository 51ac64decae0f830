"""Fifty samplers and a learner in virtual time: nothing twice, nobody idle, few operations."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pytest

from jax_t2sql.bus import Bounds, check_bus
from jax_t2sql.bus.audit import audit
from jax_t2sql.bus.contract import beat_pause, claim_step, idle_pause
from jax_t2sql.config import AdapterConfig, FleetConfig, TrainConfig
from jax_t2sql.config_loading import resolve
from jax_t2sql.errors import UserError


@pytest.fixture(scope="module")
def fleet():
    path = Path(__file__).resolve().parent.parent / "bench" / "fleet_simulation.py"
    spec = importlib.util.spec_from_file_location("fleet_simulation", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


WORKERS, IN_FLIGHT, BATCH, K = 50, 4, 50, 3


@pytest.mark.parametrize(("in_flight", "batch", "k"), [(IN_FLIGHT, BATCH, K), (16, 160, 4)])
def test_a_window_of_the_fleets_size_starves_nobody_and_repeats_nothing(fleet, in_flight, batch, k):
    assert WORKERS * in_flight == (k + 1) * batch
    result = fleet.simulate(
        workers=WORKERS, in_flight=in_flight, batch=batch, k=k, steps=6, train_seconds=30.0
    )
    bus, store = result.bus, result.store.inner
    assert bus.version == 6 and audit(store).faults == []
    issued = bus.state.next_seq
    claims = Counter(key.split("/")[-1] for key in store.keys("claims/"))
    assert max(claims.values()) == 1 and len(claims) <= issued, "every task is claimed once"
    assert {task.attempt for task in bus.state.open_tasks.values()} <= {0}, "and offered once"
    assert sum(result.delivered) == len(store.keys("groups/"))
    share = sum(result.delivered) / WORKERS
    assert min(result.delivered) > share / 3, "nobody starves"
    assert max(result.delivered) < 3 * share
    # A claim and a group each, and few entries; how often a fleet looks is measured in bench.
    assert 1.8 < result.operations["create"] / result.groups < 2.5


def test_a_window_below_the_fleet_is_refused(tmp_path):
    bounds = Bounds(vocab_size=100, groups_per_batch=BATCH, max_staleness=K)
    check_bus(tmp_path, bounds=bounds, workers=WORKERS, groups_in_flight=IN_FLIGHT)
    with pytest.raises(UserError, match="work on 204 groups, but only .* = 200 may be"):
        check_bus(tmp_path, bounds=bounds, workers=WORKERS + 1, groups_in_flight=IN_FLIGHT)


def test_large_fleets_look_and_beat_less_often():
    def pauses(batch, still_seconds=360.0):
        bounds = Bounds(vocab_size=100, groups_per_batch=batch, max_staleness=4)
        options = {"groups_in_flight": 16}
        beat = beat_pause(bounds, still_seconds=still_seconds, **options)
        return idle_pause(bounds, **options), beat

    large = Bounds(vocab_size=100, groups_per_batch=4000, max_staleness=4)
    assert idle_pause(large, groups_in_flight=16, busy=False) == 5.0
    assert pauses(4) == (0.5, 5.0) and pauses(4000) == (20.0, 72.0)
    lora = AdapterConfig(kind="lora")
    for workers, still in ((0, 60.0), (75, 60.0), (250, 200.0), (1_000, 400.0), (9_000, 400.0)):
        config = TrainConfig(adapter=lora, fleet=FleetConfig(workers=workers))
        assert resolve(config).fleet.still_seconds == still
    assert pauses(4000, 400.0)[1] == 80.0, "the default spares a large fleet no beat"
    assert pauses(4000, 60.0)[1] == 12.0, "four beats may be lost"
    assert [claim_step(n) for n in (1, 4, 16, 64)] == [1, 1, 2, 10]
