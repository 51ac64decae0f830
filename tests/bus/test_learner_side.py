import random
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from jax_t2sql.bus import (
    Bounds,
    ContractError,
    Log,
    LogError,
    LostLeadership,
    RunEnded,
    SamplerBus,
    open_store,
)
from jax_t2sql.bus.groups import encode_group
from jax_t2sql.bus.keys import group_key
from jax_t2sql.errors import UserError


@pytest.fixture
def store():
    return open_store("memory:///")


@pytest.fixture
def sampler_of(kit, store):
    def make(name="s1", learner_epoch=None):
        return SamplerBus(store, sampler=name, contract=kit.contract, learner_epoch=learner_epoch)

    return make


@pytest.fixture
def deliver(kit, sampler_of):
    """Sample all open tasks at `version`, by a sampler process of its own."""

    def go(version, name="s1"):
        sampler = sampler_of(name)
        tasks = sampler.claim(100)
        groups = [sampler.make_group(task, kit.rollouts(task, version)) for task in tasks]
        assert all(sampler.put_groups(groups))
        return tasks

    return go


def bounds(kit, **changes):
    return Bounds(**({"vocab_size": kit.vocab, "groups_per_batch": 2} | changes))


def fates(bus):
    return {seq: fate for seq, (fate, _) in bus.state.fates.items()}


def seqs(groups):
    return [ready.task.seq for ready in groups]


def test_a_step_from_issue_to_publish(kit, store, deliver):
    bus = kit.lead(store)
    tasks = bus.issue(kit.new_tasks(2), cursor={"at": 2})
    assert [task.seq for task in tasks] == [0, 1]
    assert bus.ready_groups() == []
    deliver(0)
    ready = bus.ready_groups()
    assert seqs(ready) == [0, 1]
    batch = bus.append_batch(ready[::-1], pack_seed=5)
    assert [group.seq for group in batch.groups] == [1, 0], "the order is the caller's"
    assert (batch.step, batch.pack_seed, batch.length_ratio) == (0, 5, 1.0)
    assert bus.version == 0
    assert bus.publish().step == 1
    assert bus.version == 1
    assert fates(bus) == {0: "trained", 1: "trained"}


def test_capacity_counts_trained_groups_until_their_publish(kit, store, deliver):
    bus = kit.lead(store, bounds=bounds(kit, max_staleness=1))
    assert bus.capacity == 4
    bus.issue(kit.new_tasks(4), cursor={})
    assert bus.capacity == 0
    with pytest.raises(ValueError, match="1 training tasks, but only 0"):
        bus.issue(kit.new_tasks(1), cursor={})
    deliver(0)
    ready = bus.ready_groups()
    bus.decide(3, "zero-signal")
    assert bus.capacity == 1, "any other fate frees the place at once"
    bus.append_batch(ready[:2], pack_seed=0)
    assert bus.capacity == 1
    bus.publish()
    assert bus.capacity == 3


def test_fates_wait_for_the_next_batch_and_are_found_again(kit, store, deliver):
    bus = kit.lead(store)
    bus.issue(kit.new_tasks(2), cursor={})
    deliver(0)
    bus.ready_groups()
    bus.decide(0, "zero-signal", reason="all rewards equal")
    again = kit.lead(store)
    assert seqs(again.ready_groups()) == [0, 1], "the fate died with the process"
    again.decide(0, "zero-signal")
    batch = again.append_batch(again.ready_groups(), pack_seed=0)
    assert [(d.seq, d.fate, d.sampler) for d in batch.fates] == [
        (1, "trained", "s1"),
        (0, "zero-signal", "s1"),
    ]


def test_a_task_has_one_fate(kit, store, deliver):
    bus = kit.lead(store)
    bus.issue(kit.new_tasks(2), cursor={})
    deliver(0)
    ready = bus.ready_groups()
    bus.decide(0, "zero-signal")
    with pytest.raises(ValueError, match="fate so far: zero-signal"):
        bus.decide(0, "stale")
    with pytest.raises(ValueError, match="group 0 is not one"):
        bus.append_batch(ready, pack_seed=0)
    with pytest.raises(ValueError, match="each once"):
        bus.append_batch([ready[1], ready[1]], pack_seed=0)
    with pytest.raises(ValueError, match="at least one"):
        bus.append_batch([], pack_seed=0)
    with pytest.raises(ValueError, match="only append_batch"):
        bus.decide(1, "trained")
    with pytest.raises(ValueError, match="task 9 is not undecided"):
        bus.decide(9, "unused")


def test_stale_groups_are_not_trained(kit, store, deliver):
    bus = kit.lead(store, bounds=bounds(kit, max_staleness=1, groups_per_batch=1))
    for step in range(2):
        bus.issue(kit.new_tasks(1), cursor={})
        if step == 0:
            bus.issue(kit.new_tasks(1), cursor={})
        deliver(0)
        bus.append_batch(bus.ready_groups()[-1:], pack_seed=0)
        bus.publish()
    assert bus.version == 2
    assert bus.ready_groups() == []
    (decision,) = bus.decided
    assert (decision.seq, decision.fate) == (0, "stale")
    assert "2 versions old, the bound is 1" in decision.reason


def test_groups_taken_before_a_publish_are_checked_again(kit, store, deliver):
    bus = kit.lead(store, bounds=bounds(kit, max_staleness=0))
    bus.issue(kit.new_tasks(2), cursor={})
    deliver(0)
    first, second = bus.ready_groups()
    bus.append_batch([first], pack_seed=0)
    with pytest.raises(ValueError, match="publish first"):
        bus.append_batch([second], pack_seed=0)
    bus.publish()
    with pytest.raises(ValueError, match="too stale"):
        bus.append_batch([second], pack_seed=0)


def test_bad_objects_name_their_sampler_and_block_nothing(kit, store, sampler_of):
    bus = kit.lead(store, bounds=bounds(kit, groups_per_batch=4))
    bus.issue(kit.new_tasks(4), cursor={})
    sampler = sampler_of("evil")
    tasks = sampler.claim(4)
    good = [encode_group(sampler.make_group(task, kit.rollouts(task, 0))) for task in tasks]
    high = kit.rollout(ids_T=np.full(8, kit.vocab))
    store.create(group_key(0), good[0][:-3])
    store.create(group_key(1), encode_group(sampler.make_group(tasks[1], [high, high])))
    store.create(group_key(2), good[3])
    store.create(group_key(3), good[3])
    store.create(group_key(4), good[3])  # never issued
    assert seqs(bus.ready_groups()) == [3]
    assert {(d.seq, d.fate, d.sampler) for d in bus.decided} == {
        (0, "corrupt", "evil"),
        (1, "invalid", "evil"),
        (2, "invalid", "evil"),
    }
    reasons = " ".join(decision.reason for decision in bus.decided)
    assert "vocabulary has 0..99" in reasons and "answers task 3" in reasons


def test_a_sampler_refuses_to_put_what_nobody_would_accept(kit, store, sampler_of):
    kit.lead(store).issue(kit.new_tasks(1), cursor={})
    sampler = sampler_of()
    (task,) = sampler.claim(1)
    future = sampler.make_group(task, kit.rollouts(task, version=1))
    with pytest.raises(ValueError, match="versions in 1..1, the learner has 0..0"):
        sampler.put_groups([future])
    assert store.keys("groups/") == []


def test_only_the_first_group_of_a_task_counts(kit, store, sampler_of):
    bus = kit.lead(store)
    bus.issue(kit.new_tasks(1), cursor={})
    one, two = sampler_of("one"), sampler_of("two")
    (task,) = one.claim(5)
    assert two.claim(5) == []
    assert one.put_groups([one.make_group(task, kit.rollouts(task, 0))]) == [True]
    assert two.put_groups([two.make_group(task, kit.rollouts(task, 0))]) == [False]
    (ready,) = bus.ready_groups()
    assert ready.group.sampler == "one"


@pytest.mark.parametrize("part", ["config", "code", "base_model", "grader"])
def test_another_contract_is_refused_by_name(kit, store, part):
    kit.lead(store)
    changed = msgspec.structs.replace(kit.contract, **{part: "other"})
    with pytest.raises(ContractError, match=rf"{part} \(run: ., now: other\).*--fork-from"):
        kit.lead(store, contract=changed)
    with pytest.raises(ContractError, match=part):
        SamplerBus(store, sampler="s1", contract=changed)
    assert Log.open(store).head == 1, "nothing was appended"


def test_other_bounds_are_refused_by_name(kit, store):
    kit.lead(store)
    with pytest.raises(ContractError, match=r"groups_per_batch \(run: 2, now: 3\)"):
        kit.lead(store, bounds=bounds(kit, groups_per_batch=3))


def test_a_group_of_another_contract_is_invalid(kit, store, sampler_of):
    bus = kit.lead(store)
    bus.issue(kit.new_tasks(1), cursor={})
    sampler = sampler_of()
    (task,) = sampler.claim(1)
    group = sampler.make_group(task, kit.rollouts(task, 0))
    other = msgspec.structs.replace(group, contract="0" * 64)
    store.create(group_key(0), encode_group(other))
    assert bus.ready_groups() == []
    assert bus.decided[0].fate == "invalid"


def test_an_ended_run_gives_every_task_a_fate_and_stays_ended(kit, store, deliver, sampler_of):
    bus = kit.lead(store)
    bus.issue(kit.new_tasks(2), cursor={})
    deliver(0)
    bus.ready_groups()
    bus.decide(1, "zero-signal")
    sampler = sampler_of()
    bus.end(reason="done")
    assert fates(bus) == {0: "unused", 1: "zero-signal"}
    sampler.refresh()
    assert sampler.ended
    with pytest.raises(RunEnded, match=r"has ended \(done\)"):
        kit.lead(store)


def test_a_sampler_without_a_run_says_so(sampler_of):
    with pytest.raises(UserError, match="start the learner first"):
        sampler_of()


def test_a_learner_that_lost_writes_nothing_more(kit, store):
    old = kit.lead(store)
    new = kit.lead(store, publish=False)
    for _ in range(2):
        with pytest.raises(LostLeadership):
            old.issue(kit.new_tasks(1), cursor={})
    new.publish()
    assert Log.open(store).head == 3
    assert new.epoch == 2


def test_a_restart_offers_again_what_an_inline_sampler_held(kit, store, sampler_of, deliver):
    bus = kit.lead(store, bounds=bounds(kit, groups_per_batch=4))
    bus.issue(kit.new_tasks(4), cursor={"at": 4})
    inline = sampler_of("inline", learner_epoch=bus.epoch)
    mine = inline.claim(2)
    inline.put_groups([inline.make_group(mine[0], kit.rollouts(mine[0], 0))])
    theirs = sampler_of("far").claim(1)
    again = kit.lead(store, bounds=bounds(kit, groups_per_batch=4))
    assert again.state.cursor == {"at": 4}
    open_now = sampler_of().open_tasks()
    # 0 is delivered, 1 was the dead inline sampler's, 2 is still claimed by a living process.
    assert [(task.seq, task.attempt) for task in open_now] == [(1, 1), (3, 0)]
    assert [task.seq for task in theirs] == [2]
    deliver(0)
    assert seqs(again.ready_groups()) == [0, 1, 3]


def test_a_task_that_kills_every_learner_fails_in_the_end(kit, store, sampler_of):
    limits = bounds(kit, max_attempts=3)
    for _ in range(3):
        bus = kit.lead(store, bounds=limits)
        if not bus.state.next_seq:
            bus.issue(kit.new_tasks(1), cursor={})
        assert len(sampler_of("inline", learner_epoch=bus.epoch).claim(1)) == 1
    bus = kit.lead(store, bounds=limits)
    assert [(d.seq, d.fate) for d in bus.decided] == [(0, "failed")]
    assert bus.capacity == 2


def test_claims_expire_by_the_learners_clock_alone(kit, store, sampler_of):
    bus = kit.lead(store)
    bus.issue(kit.new_tasks(2), cursor={})
    dead, alive = sampler_of("dead"), sampler_of("alive")
    assert (len(dead.claim(1)), len(alive.claim(1))) == (1, 1)
    dead.heartbeat()
    for now in (0.0, 4.0, 8.0):
        alive.heartbeat(served=0)
        assert bus.expire_claims(still_seconds=10, clock=lambda now=now: now) == ()
    alive.heartbeat()
    (offer,) = bus.expire_claims(still_seconds=10, clock=lambda: 12.0)
    assert (offer.seq, offer.attempt) == (0, 1)
    alive.refresh()
    assert [task.seq for task in alive.claim(5)] == [0]
    late = dead.make_group(dead.state.open_tasks[0], kit.rollouts(offer, 0))
    assert dead.put_groups([late]) == [True], "late, but first: it counts"
    assert seqs(bus.ready_groups()) == [0]


def test_claims_of_inline_samplers_die_with_their_learner_and_not_before(kit, store, sampler_of):
    old = kit.lead(store)
    old.issue(kit.new_tasks(2), cursor={})
    zombie = sampler_of("inline", learner_epoch=old.epoch)
    new = kit.lead(store)
    assert [task.seq for task in zombie.claim(1)] == [0], "it has not read of the takeover yet"
    mine = sampler_of("inline", learner_epoch=new.epoch)
    assert [task.seq for task in mine.claim(2)] == [1]
    # Claims that no heartbeat names are read at their second look.
    for now in (0.0, 1.0, 99.0):
        again = new.expire_claims(still_seconds=10, clock=lambda now=now: now)
        assert [(task.seq, task.attempt) for task in again] == ([(0, 1)] if now == 1 else [])
    zombie.refresh()
    with pytest.raises(LostLeadership, match="epoch 0.*epoch 3"):
        zombie.claim(1)


def test_a_restarted_sampler_frees_its_old_claims(kit, store, sampler_of):
    bus = kit.lead(store)
    bus.issue(kit.new_tasks(1), cursor={})
    old = sampler_of("s1")
    old.claim(1)
    old.heartbeat()
    assert bus.expire_claims(still_seconds=10, clock=lambda: 0.0) == ()
    sampler_of("s1").heartbeat()
    assert [t.attempt for t in bus.expire_claims(still_seconds=10, clock=lambda: 1.0)] == [1]


def test_what_a_living_sampler_gives_back_is_offered_again(kit, store, sampler_of):
    bus = kit.lead(store, bounds=bounds(kit, max_attempts=2))
    bus.issue(kit.new_tasks(2), cursor={})
    sampler = sampler_of()

    def offered_again():
        sampler.heartbeat()
        offers = bus.expire_claims(still_seconds=10, clock=lambda: 0.0)
        return [(task.seq, task.attempt) for task in offers]

    one, two = sampler.claim(2)
    assert offered_again() == []
    sampler.give_back(one)
    assert offered_again() == [], "that heartbeat may have been under way when it claimed"
    assert offered_again() == [(0, 1)]
    assert offered_again() == []
    sampler.refresh()
    (again,) = sampler.claim(5)
    sampler.put_groups([sampler.make_group(two, kit.rollouts(two, 0))])
    for _ in range(3):
        assert offered_again() == [], "delivered is not given back"
    sampler.give_back(again)
    offered_again()
    assert [(d.seq, d.fate) for d in bus.decided] == [(0, "failed")], "after the last attempt"


def test_what_a_sampler_held_that_left_is_offered_again_before_it_counts_as_dead(
    kit, store, sampler_of
):
    bus = kit.lead(store)
    bus.issue(kit.new_tasks(1), cursor={})
    sampler = sampler_of()
    sampler.claim(1)
    sampler.heartbeat(left=True)
    assert bus.expire_claims(still_seconds=10, clock=lambda: 0.0) == ()  # first seen: not read yet
    offers = bus.expire_claims(still_seconds=10, clock=lambda: 1.0)
    assert [(task.seq, task.attempt) for task in offers] == [(0, 1)]


def test_claims_cost_one_listing_and_one_read_each(kit, s3, s3_location):
    store = open_store(s3_location)
    bus = kit.lead(store, bounds=bounds(kit, groups_per_batch=8))
    bus.issue(kit.new_tasks(8), cursor={})
    sampler = SamplerBus(store, sampler="s1", contract=kit.contract)
    sampler.claim(5)

    def reads():
        s3.requests()
        bus.expire_claims(still_seconds=10, clock=lambda: 0.0)
        return len([path for method, path in s3.requests() if "/claims/" in path])

    assert [reads() for _ in range(3)] == [0, 5, 0]
    sampler.claim(3)
    sampler.heartbeat()
    assert reads() == 0, "the heartbeat names them"


def test_who_picks_at_random_and_finds_nothing_waits_for_news(kit, store, sampler_of):
    bus = kit.lead(store, bounds=bounds(kit, groups_per_batch=2500))
    bus.issue(kit.new_tasks(2200), cursor={})
    late, early, rng = sampler_of("late"), sampler_of("early"), random.Random(0)
    assert len(late.claim(1)) == 1, "one that holds nothing would try every time"
    assert len(early.claim(2200)) == 2199
    listed, keys = [], store.keys

    def counted(prefix, start=""):
        listed.append(prefix)
        return keys(prefix, start=start)

    late.store = SimpleNamespace(
        keys=counted, create=store.create, read=store.read, overwrite=store.overwrite
    )

    def listings():
        assert late.claim(1, rng=rng) == []
        found = len(listed)
        listed.clear()
        return found

    assert [listings() for _ in range(3)] == [1, 0, 0], "one shard tells of the others"
    for _ in range(3):
        assert listings() == 0
        late.refresh()
    assert listings() == 1, "after a few looks it tries again"
    bus.issue(kit.new_tasks(1), cursor={})
    late.refresh()
    assert len(late.claim(1, rng=rng)) == 1, "and at once when there is something new"


def test_a_claim_lists_one_shard_and_none_that_is_known_to_be_taken(kit, store, sampler_of):
    bus = kit.lead(store, bounds=bounds(kit, groups_per_batch=2500))
    bus.issue(kit.new_tasks(2500), cursor={})
    sampler, other = sampler_of("one"), sampler_of("two")
    listed = []
    keys = store.keys
    sampler.store = SimpleNamespace(
        keys=lambda prefix, start="": listed.append(prefix) or keys(prefix, start=start),
        create=store.create,
        read=store.read,
        overwrite=store.overwrite,
    )
    assert seqs_of(sampler.claim(2)) == [0, 1]
    assert listed == ["claims/00000/"]
    assert len(other.claim(1200)) == 1200
    listed.clear()
    assert seqs_of(sampler.claim(2)) == [1202, 1203]
    assert listed == ["claims/00000/", "claims/00001/"]
    listed.clear()
    assert seqs_of(sampler.claim(2)) == [1204, 1205]
    assert listed == ["claims/00001/"], "the first shard is full for good"


def test_eval_tasks_have_credits_of_their_own_and_a_deadline(kit, store, deliver):
    name = "run-e0-s0-01234567"
    bus = kit.lead(store, bounds=bounds(kit, max_eval_tasks=1))
    (evaluation,) = kit.new_tasks(1, kind="eval", adapter=name, deadline=0)
    bus.issue([*kit.new_tasks(2), evaluation], cursor={})
    assert (bus.capacity, bus.eval_capacity) == (0, 0)
    with pytest.raises(ValueError, match="1 eval tasks, but only 0"):
        bus.issue([evaluation], cursor={})
    deliver(0)
    assert seqs(bus.ready_groups()) == [0, 1]
    assert seqs(bus.ready_evals()) == [2]
    with pytest.raises(ValueError, match="group 2 is not one"):
        bus.append_batch(bus.ready_evals(), pack_seed=0)
    bus.append_batch(bus.ready_groups(), pack_seed=0)
    assert bus.undecided_evals() == [2]
    bus.publish()
    bus.decide(2, "unused")
    assert bus.undecided_evals() == []
    assert bus.eval_capacity == 1
    with pytest.raises(ValueError, match="adapter they pin"):
        bus.issue(kit.new_tasks(1, kind="eval"), cursor={})


def trained_run(kit, store, deliver, *, skipped=()):
    """Three batches of two; returns the positions of checkpoints made before each publish."""
    bus = kit.lead(store)
    positions = []
    for step in range(3):
        bus.issue(kit.new_tasks(2, first_seed=10 * step), cursor={})
        deliver(bus.version)
        bus.append_batch(bus.ready_groups(), pack_seed=step)
        positions.append(bus.position)
        bus.publish(applied=step not in skipped)
    return positions


def test_replay_gives_the_batches_after_a_checkpoint(kit, store, deliver):
    positions = trained_run(kit, store, deliver)
    bus = kit.lead(store, publish=False)
    assert [step.batch.pack_seed for step in bus.replay(None)] == [0, 1, 2]
    (one, two) = bus.replay(positions[0])
    assert [group.seq for group in one.groups] == [2, 3]
    assert one.groups[0].rollouts[0] == kit.rollout(seed=10, version=1)
    assert two.published
    assert list(bus.replay(positions[2])) == []
    with pytest.raises(ValueError, match="publish first"):
        bus.append_batch([], pack_seed=0)
    again = bus.publish()
    assert (again.step, again.batch, again.epoch) == (3, None, bus.epoch)


def test_replay_decides_nothing_anew(kit, store, deliver):
    trained_run(kit, store, deliver, skipped={1})
    bus = kit.lead(store, publish=False)
    assert bus.version == 2
    assert [step.batch.pack_seed for step in bus.replay(None)] == [0, 2]


def test_an_open_batch_is_replayed_and_concluded(kit, store, deliver):
    positions = trained_run(kit, store, deliver)
    bus = kit.lead(store)
    bus.issue(kit.new_tasks(2), cursor={})
    deliver(3)
    batch = bus.append_batch(bus.ready_groups(), pack_seed=3)
    again = kit.lead(store, publish=False)
    assert again.capacity == 0
    last = list(again.replay(positions[2]))[-1]
    assert (last.batch, last.published) == (batch, False)
    assert again.publish(applied=False).batch == batch.index
    assert (again.version, again.capacity) == (3, 2)


def test_replay_refuses_foreign_positions_and_changed_groups(kit, store, deliver):
    positions = trained_run(kit, store, deliver)
    bus = kit.lead(store)
    with pytest.raises(LogError, match="belongs to another run"):
        next(bus.replay((positions[0][0], positions[1][1])))
    store.delete([group_key(2)])
    replayed = bus.replay(None)
    assert next(replayed).batch.pack_seed == 0
    with pytest.raises(LogError, match=r"00000002.*Bring the object back"):
        next(replayed)
    store.create(group_key(2), store.read(group_key(3)))
    with pytest.raises(LogError, match="its sha256 is not the one in the log"):
        list(bus.replay(None))


def test_replay_from_below_the_floor_is_refused(kit, store, deliver):
    positions = trained_run(kit, store, deliver)
    bus = kit.lead(store)
    bus.publish(floor=positions[1][0])
    with pytest.raises(LogError, match="Restore a newer checkpoint"):
        list(bus.replay(positions[0]))
    assert [step.batch.pack_seed for step in bus.replay(positions[1])] == [2]
    with pytest.raises(LogError, match="has floor 0 outside"):
        bus.publish(floor=0)


def test_the_length_ratio_shows_a_bias_against_long_episodes(kit, store, sampler_of):
    bus = kit.lead(store)
    bus.issue(kit.new_tasks(2), cursor={})
    sampler = sampler_of()
    tasks = sampler.claim(2)
    sampler.put_groups(
        [
            sampler.make_group(task, [kit.rollout(length=length)] * 2)
            for task, length in zip(tasks, (10, 30), strict=True)
        ]
    )
    short, _ = bus.ready_groups()
    bus.decide(1, "zero-signal")
    assert bus.append_batch([short], pack_seed=0).length_ratio == 0.5


def test_the_length_ratio_counts_a_group_once_when_it_is_decided(kit, store, sampler_of):
    bus = kit.lead(store, bounds=bounds(kit, groups_per_batch=3, max_staleness=1))
    bus.issue(kit.new_tasks(3), cursor={})
    sampler = sampler_of()
    tasks = sampler.claim(3)
    for task, length in zip(tasks, (10, 30, 20), strict=True):
        sampler.put_groups([sampler.make_group(task, [kit.rollout(length=length)] * 2)])
    short, long, other = bus.ready_groups()
    assert bus.length_ratio([short]) == 1.0, "those that wait may still be trained"
    assert bus.append_batch([short], pack_seed=0).length_ratio == 1.0
    bus.publish()
    bus.decide(long.task.seq, "zero-signal")
    assert bus.append_batch([other], pack_seed=0).length_ratio == 20 / 25


def test_a_group_under_way_is_at_risk_when_one_more_update_makes_it_stale(kit, store, deliver):
    bus = kit.lead(store, bounds=bounds(kit, groups_per_batch=2, max_staleness=1))
    bus.issue(kit.new_tasks(2), cursor={})
    deliver(0)
    bus.issue(kit.new_tasks(1), cursor={})
    assert [r.task.seq for r in bus.ready_groups()] == [0, 1]
    assert (bus.in_flight, bus.at_risk) == (1, 0)
    bus.append_batch(bus.ready_groups(), pack_seed=0)
    bus.publish()
    bus.issue(kit.new_tasks(1), cursor={})
    assert (bus.in_flight, bus.at_risk) == (2, 1)
    deliver(1)
    bus.ready_groups()
    assert (bus.in_flight, bus.at_risk) == (0, 0)


def test_many_samplers_pick_at_random_and_one_picks_the_oldest(kit, store, sampler_of):
    bus = kit.lead(store, bounds=bounds(kit, groups_per_batch=40))
    bus.issue(kit.new_tasks(40), cursor={})
    assert seqs_of(sampler_of("one").claim(3)) == [0, 1, 2]
    picked = seqs_of(sampler_of("two").claim(20, rng=random.Random(0)))
    assert len(set(picked)) == 20 and picked != sorted(picked)


def seqs_of(tasks):
    return [task.seq for task in tasks]


def test_a_quarantined_sampler_trains_nothing_more_and_loses_its_claims(kit, store, sampler_of):
    """Groups that wait, that come later and that are under way; then the same after a restart."""
    bus = kit.lead(store, bounds=bounds(kit, groups_per_batch=6))
    bus.issue(kit.new_tasks(6), cursor={})
    bad, good = sampler_of("bad"), sampler_of("good")

    def put(sampler, tasks):
        groups = [sampler.make_group(task, kit.rollouts(task, 0)) for task in tasks]
        assert all(sampler.put_groups(groups))

    held = bad.claim(4)
    put(bad, held[:2])
    put(good, good.claim(1))
    first, waits, other = bus.ready_groups()
    bus.append_batch([first, other], pack_seed=0)
    bus.quarantine("bad", reason="ratio 0.8")
    assert bad.quarantined is None and bus.state.quarantined == {}, "not before the publish"
    entry = bus.publish()
    assert [(q.sampler, q.reason) for q in entry.quarantined] == [("bad", "ratio 0.8")]
    assert [(d.seq, d.fate) for d in bus.decided] == [(waits.task.seq, "invalid")]
    put(bad, held[2:3])
    assert seqs(bus.ready_groups()) == []
    late = {d.seq: d.reason for d in bus.decided}[held[2].seq]
    assert "'bad' is quarantined by entry" in late and "ratio 0.8" in late

    for now in (0.0, 1.0):  # it lives, and says that it holds the last one
        bad.heartbeat()
        again = bus.expire_claims(still_seconds=99, clock=lambda now=now: now)
        assert [(t.seq, t.attempt) for t in again] == ([(held[3].seq, 1)] if now == 0 else [])
    bad.refresh()
    good.refresh()
    assert bad.quarantined == "ratio 0.8" and bad.claim(9) == []
    assert sampler_of("bad").quarantined == "ratio 0.8", "started again under its name"
    assert good.quarantined is None and held[3].seq in [task.seq for task in good.claim(9)]

    bus.quarantine("bad", reason="again")
    assert bus.publish().quarantined == ()
    new = kit.lead(store, bounds=bounds(kit, groups_per_batch=6))
    assert new.ready_groups() == [] and new.state.quarantined["bad"] == ("ratio 0.8", entry.index)
    assert {d.seq for d in new.decided} == {waits.task.seq, held[2].seq}
