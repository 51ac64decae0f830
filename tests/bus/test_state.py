import pytest

from jax_t2sql.bus import (
    Batch,
    Bounds,
    Decision,
    End,
    Issue,
    LogError,
    Publish,
    Quarantine,
    RunState,
    Start,
)
from jax_t2sql.bus.entries import (
    NO_ENTRY,
    BatchGroup,
    Takeover,
    Task,
    decode_entry,
    encode_entry,
)


@pytest.fixture
def apply(kit):
    """A function that applies an entry to a run with tasks 0 and 1 open, at version 0."""
    state = RunState()

    def go(kind, *, epoch=None, **fields):
        index = go.count
        chain = dict(index=index, previous=NO_ENTRY, nonce="n")
        state.apply(kind(epoch=state.epoch if epoch is None else epoch, **chain, **fields))
        go.count += 1
        return state

    go.count = 0
    go.state = state
    bounds = Bounds(vocab_size=9, groups_per_batch=2)
    go.start = dict(run="r", learner="l", contract=kit.contract, bounds=bounds)
    go(Start, **go.start)
    go(Issue, tasks=(task(0), task(1)), cursor={})
    return go


def task(seq, attempt=0):
    return Task(seq=seq, problem="q", group_size=2, seed=0, attempt=attempt)


def batch(*seqs, step=0, fates=None):
    groups = tuple(BatchGroup(seq=seq, sha256=NO_ENTRY, lengths=(1,)) for seq in seqs)
    fates = fates or [(seq, "trained") for seq in seqs]
    decisions = tuple(Decision(seq=seq, fate=fate) for seq, fate in fates)
    return dict(step=step, groups=groups, pack_seed=0, fates=decisions, length_ratio=1.0)


def publish(step, index, **more):
    return dict({"step": step, "batch": index, "applied": True, "adapter": None}, **more)


REFUSED = [
    ("one start entry", Start, "start"),
    ("has epoch 0", Takeover, dict(learner="x", epoch=0)),
    ("has epoch 1", Issue, dict(tasks=(), cursor={}, epoch=1)),
    ("expected new task 2", Issue, dict(tasks=(task(3),), cursor={})),
    ("expected new task 2", Issue, dict(tasks=(task(0),), cursor={})),
    ("expected new task 2", Issue, dict(tasks=(task(0, attempt=2),), cursor={})),
    ("offers a task twice", Issue, dict(tasks=(task(0, 1), task(0, 1)), cursor={})),
    ("is for version 1", Batch, batch(0, step=1)),
    ("at least one", Batch, batch()),
    ("exactly its own groups", Batch, batch(0, fates=[(0, "stale")])),
    ("exactly its own groups", Batch, batch(0, fates=[(0, "trained"), (1, "trained")])),
    ("decides task 7 again or unasked", Batch, batch(7)),
    ("decides task 0 again", Batch, batch(0, fates=[(0, "trained"), (0, "stale")])),
    ("concludes batch 2, the open one is None", Publish, publish(1, 2)),
    ("publishes version 1, expected 0", Publish, publish(1, None)),
    ("has floor 9", Publish, publish(0, None, floor=9)),
    (r"leaves tasks \[0, 1\]", End, dict(reason="", final=None, best=None, fates=())),
]


@pytest.mark.parametrize(("fault", "kind", "fields"), REFUSED)
def test_contradictions_are_refused_and_change_nothing(apply, fault, kind, fields):
    fields = apply.start if fields == "start" else fields
    with pytest.raises(LogError, match=f"log entry 2 .*{fault}"):
        apply(kind, **fields)
    state = apply.state
    assert (state.version, state.open_batch, list(state.open_tasks)) == (0, None, [0, 1])
    assert state.fates == {}
    assert apply(Batch, **batch(1, 0)).open_batch.index == 2


def test_a_trained_task_is_never_decided_again(apply):
    apply(Batch, **batch(0))
    with pytest.raises(LogError, match="no publish has concluded"):
        apply(Batch, **batch(1))
    apply(Publish, **publish(1, 2))
    with pytest.raises(LogError, match="fate so far: trained"):
        apply(Batch, **batch(0, step=1))
    with pytest.raises(LogError, match="expected new task 2"):
        apply(Issue, tasks=(task(0, 1),), cursor={})


def test_skipped_batches_do_not_raise_the_version(apply):
    apply(Batch, **batch(0))
    assert apply(Publish, **publish(0, 2, applied=False)).version == 0
    assert apply(Batch, **batch(1)).fates == {0: ("trained", 2), 1: ("trained", 4)}


def test_nothing_follows_the_end(apply):
    fates = (Decision(seq=0, fate="unused"), Decision(seq=1, fate="unused"))
    apply(End, reason="", final=None, best=None, fates=fates)
    with pytest.raises(LogError, match="follows the end"):
        apply(Takeover, learner="x", epoch=3)


def test_a_log_begins_with_start():
    entry = Takeover(index=0, previous=NO_ENTRY, epoch=0, nonce="n", learner="x")
    with pytest.raises(LogError, match="begins with its one start"):
        RunState().apply(entry)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "hinted"},
        {"origin": 3},
        {"kind": "hinted", "origin": 5},
        {"kind": "hinted", "origin": 9},
    ],
)
def test_only_hinted_tasks_name_an_earlier_one(fields):
    with pytest.raises(ValueError, match="hinted tasks, and no others"):
        Task(seq=5, problem="q", group_size=2, seed=0, **fields)
    assert Task(seq=5, problem="q", group_size=2, seed=0, kind="hinted", origin=4).origin == 4


def test_nobody_trains_what_a_quarantined_sampler_made(apply):
    found = (Quarantine(sampler="s1", reason="why"),)
    assert apply(Publish, **publish(0, None, quarantined=found)).quarantined == {"s1": ("why", 2)}
    fields = batch(0)
    fields["fates"] = (Decision(seq=0, fate="trained", sampler="s1"),)
    with pytest.raises(LogError, match="trains task 0 of sampler 's1', which entry 2 has quar"):
        apply(Batch, **fields)
    for names in (("s1",), ("s2", "s2")):
        again = tuple(Quarantine(sampler=name, reason="") for name in names)
        with pytest.raises(LogError, match="quarantines a sampler again"):
            apply(Publish, **publish(0, None, quarantined=again))
    fields["fates"] = (
        Decision(seq=0, fate="invalid", sampler="s1"),
        Decision(seq=1, fate="trained"),
    )
    fields["groups"] = batch(1)["groups"]
    assert apply(Batch, **fields).open_batch.index == 3


def test_a_log_from_before_there_was_a_quarantine_is_read():
    entry = Publish(index=1, previous=NO_ENTRY, epoch=0, nonce="n", **publish(0, None))
    data = encode_entry(entry)
    assert decode_entry(data.replace(b',"quarantined":[]', b"")) == entry
    assert b"quarantined" in data
