"""What one host alone can show of several; two real ones are in tests/test_fleet_training.py."""

from dataclasses import dataclass

import numpy as np
import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.rl.assembly import check_shared
from jax_t2sql.rl.hosts import Hosts


@dataclass
class Follower:
    """A second host that sees its own disk; `name` is what host 0 wrote."""

    name: str
    count: int = 2
    leads: bool = False

    def share(self, text):
        return self.name

    def all_well(self, check):
        return check()


def test_one_host_decides_alone():
    hosts = Hosts()
    assert hosts.leads and hosts.share("a") == "a"
    assert not hosts.announce("update", stop=False, details={})
    assert hosts.announce("wait", stop=True, details={})
    assert hosts.all_well(lambda: 3) == 3
    assert np.array_equal(hosts.whole({"x": np.ones(2)})["x"], np.ones(2))
    with pytest.raises(UserError, match="^as it is$"):
        hosts.all_well(lambda: (_ for _ in ()).throw(UserError("as it is")))


def test_a_workdir_that_is_not_shared_is_refused(tmp_path):
    (tmp_path / "shared-1").touch()
    check_shared(Follower("shared-1"), tmp_path)
    for workdir, name in ((tmp_path, "shared-2"), (tmp_path / "none", "shared-1")):
        with pytest.raises(UserError, match="does not see what host 0 writes to --workdir"):
            check_shared(Follower(name), workdir)
