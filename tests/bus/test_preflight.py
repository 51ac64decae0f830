import pytest

from jax_t2sql.bus import Bounds, check_bus, open_store
from jax_t2sql.bus.preflight import file_system
from jax_t2sql.errors import UserError

LOCATIONS = ["directory", "s3"]


@pytest.fixture(params=LOCATIONS)
def location(request, tmp_path):
    if request.param == "directory":
        return tmp_path / "bus"
    return request.getfixturevalue("s3_location")


def bounds(**changes):
    return Bounds(**({"vocab_size": 10, "groups_per_batch": 4, "max_staleness": 1} | changes))


def test_a_sound_store_passes_and_keeps_nothing(location):
    assert check_bus(location, bounds=bounds(), workers=4, groups_in_flight=2) == []
    assert open_store(location).keys("probes/") == []


def test_a_window_below_the_fleet_is_refused_with_the_number_needed(tmp_path):
    with pytest.raises(UserError, match=r"9 groups.*= 8 may be.*at least 5 groups a batch"):
        check_bus(tmp_path, bounds=bounds(), workers=3, groups_in_flight=3)


def test_memory_is_for_one_process():
    assert check_bus("memory:///", bounds=bounds()) == []
    with pytest.raises(UserError, match="lives in one process, but 2 sampler"):
        check_bus("memory:///", bounds=bounds(), workers=2)


class Careless:
    """A store whose create overwrites, as one without conditional puts does."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def create(self, key, data, *, durable=True):
        self.inner.raw.put(key, data, mode="overwrite")


class Late(Careless):
    """A store whose listings lag behind."""

    def create(self, key, data, *, durable=True):
        self.inner.create(key, data)

    def keys(self, prefix, *, start=""):
        return []


@pytest.mark.parametrize(
    ("kind", "message"),
    [(Careless, "at once both won.*conditional puts"), (Late, "not in a listing")],
)
def test_a_store_that_breaks_its_promises_is_refused(kind, message):
    store = kind(open_store("memory:///"))
    with pytest.raises(UserError, match=message):
        check_bus("memory:///", open_client=lambda location: store)


def test_all_faults_come_in_one_message(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"(?s)2 faults of the bus:.*starve.*cannot be made"):
        check_bus(tmp_path / "file", bounds=bounds(), workers=9)


def test_a_bucket_that_does_not_exist_is_one_message(s3):
    with pytest.raises(UserError, match="s3://nowhere.*cannot"):
        check_bus("s3://nowhere/run")


MOUNTS = """\
/dev/vda / ext4 rw 0 0
server:/export /mnt/shared nfs4 rw 0 0
server:/other /mnt/with\\040space nfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/mnt/shared/run/bus", "nfs4"),
        ("/mnt/shared2", "ext4"),
        ("/mnt/with space/x", "nfs"),
        ("/", "ext4"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_the_deepest_mount(tmp_path, path, kind):
    from pathlib import Path

    assert file_system(Path(path), mounts=MOUNTS) == kind


def test_a_network_file_system_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr("jax_t2sql.bus.preflight.file_system", lambda path: "nfs4")
    (warning,) = check_bus(tmp_path / "bus")
    assert "network file system (nfs4)" in warning
