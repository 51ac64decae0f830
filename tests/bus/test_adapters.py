import pytest

from jax_t2sql.bus import (
    BadObject,
    Bounds,
    SamplerBus,
    collect_adapters,
    collect_groups,
    fetch_adapter,
    open_store,
    put_adapter,
    read_adapter,
)
from jax_t2sql.bus.keys import adapter_key, group_key
from jax_t2sql.errors import UserError


@pytest.fixture
def files(tmp_path):
    directory = tmp_path / "adapter"
    directory.mkdir()
    (directory / "adapter_config.json").write_text('{"r": 8}')
    (directory / "adapter_model.safetensors").write_bytes(bytes(range(256)) * 40)
    return directory


def test_an_adapter_comes_back_verified(store, files, tmp_path):
    ref = put_adapter(store, files, run="run", epoch=4, step=7)
    assert ref.name == f"run-e4-s7-{ref.sha256[:8]}"
    assert put_adapter(store, files, run="run", epoch=4, step=7) == ref, "after a crash: the same"
    expected = {path.name: path.read_bytes() for path in files.iterdir()}
    assert read_adapter(store, ref) == expected
    for _ in range(2):
        fetched = fetch_adapter(store, ref, tmp_path / "cache")
        assert fetched.name == ref.name
        assert {path.name: path.read_bytes() for path in fetched.iterdir()} == expected


def test_other_bytes_get_another_name(store, files):
    first = put_adapter(store, files, run="run", epoch=4, step=7)
    (files / "adapter_config.json").write_text('{"r": 9}')
    assert put_adapter(store, files, run="run", epoch=4, step=7).name != first.name


def test_a_changed_or_missing_file_is_corrupt(files, tmp_path):
    store = open_store(tmp_path / "bus")
    ref = put_adapter(store, files, run="run", epoch=0, step=0)
    path = store.local_path(adapter_key(ref.name, "adapter_config.json"))
    path.write_text('{"r": 9}')
    with pytest.raises(BadObject, match="adapter_config.json.*wrong sha256"):
        read_adapter(store, ref)
    path.unlink()
    with pytest.raises(BadObject, match="adapter_config.json"):
        fetch_adapter(store, ref, tmp_path / "cache")


def test_only_plain_files_are_published(store, files, tmp_path):
    with pytest.raises(UserError, match="No such file"):
        put_adapter(store, tmp_path / "absent", run="run", epoch=0, step=0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="has no files"):
        put_adapter(store, tmp_path / "empty", run="run", epoch=0, step=0)
    (files / "link").symlink_to(files / "adapter_config.json")
    with pytest.raises(UserError, match="'link' is not a plain file"):
        put_adapter(store, files, run="run", epoch=0, step=0)


def train_steps(kit, store, files, count, **bounds):
    """`count` steps, each with its own adapter; returns the learner and the adapter names."""
    limits = Bounds(vocab_size=kit.vocab, groups_per_batch=2, **bounds)
    bus = kit.lead(store, bounds=limits, publish=False)
    names = []
    for step in range(count + 1):
        (files / "adapter_config.json").write_text(f'{{"step": {step}}}')
        names.append(bus.publish(files).adapter.name)
        if step == count:
            return bus, names
        bus.issue(kit.new_tasks(2), cursor={})
        sampler = SamplerBus(store, sampler="s", contract=kit.contract, learner_epoch=0)
        sampler.put_groups(
            [sampler.make_group(task, kit.rollouts(task, step)) for task in sampler.claim(2)]
        )
        bus.append_batch(bus.ready_groups(), pack_seed=step)


def on_bus(store):
    return {key.split("/")[1] for key in store.keys("adapters/")}


def test_garbage_is_collected_only_below_the_logged_floor(kit, store, files):
    bus, names = train_steps(kit, store, files, 5)
    assert collect_adapters(store, bus.state, keep_newest=1) == []
    assert collect_groups(store, bus.state) == 0
    # A checkpoint after the third batch: entries from there on must stay readable.
    third = [e.index for e in bus.log.entries if type(e).__name__ == "Batch"][2]
    bus.publish(floor=third, keep=names[:1])
    assert set(collect_adapters(store, bus.state, keep_newest=1)) == set(names[1:3])
    assert on_bus(store) == {names[0], *names[3:]}
    assert collect_groups(store, bus.state) == 2 * 2 * 2, "two batches of two: groups and claims"
    assert store.keys("groups/") == [group_key(n) for n in range(4, 10)]
    steps = list(bus.replay((third, bus.log.shas[third])))
    assert [step.batch.step for step in steps] == [3, 4]


def test_the_newest_are_kept_whatever_the_floor(kit, store, files):
    bus, names = train_steps(kit, store, files, 3)
    bus.publish(floor=bus.log.head)
    collect_adapters(store, bus.state, keep_newest=2)
    assert on_bus(store) == set(names[-2:])
    published = [index for index, _ in bus.state.adapters]
    assert published[-2] < bus.state.floor
    with pytest.raises(ValueError, match="keep_newest=0"):
        collect_adapters(store, bus.state, keep_newest=0)


def test_what_the_floor_entry_itself_names_is_kept(kit, store, files):
    bus, names = train_steps(kit, store, files, 3)
    bus.publish(floor=bus.state.adapters[1][0])
    collect_adapters(store, bus.state, keep_newest=1)
    assert on_bus(store) == set(names[1:])


def test_adapters_that_an_eval_pins_or_the_end_names_are_kept(kit, store, files):
    bus, names = train_steps(kit, store, files, 4, max_eval_tasks=1)
    bus.issue(kit.new_tasks(1, kind="eval", adapter=names[1], deadline=9), cursor={})
    bus.publish(floor=bus.log.head)
    collect_adapters(store, bus.state, keep_newest=3)
    assert on_bus(store) == {names[1], *names[2:]}
    bus.end(reason="done", final=names[-1], best=names[2])
    collect_adapters(store, bus.state, keep_newest=1)
    assert on_bus(store) == {names[2], names[-1]}
