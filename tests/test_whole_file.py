"""A file is there whole or not at all, and has one writer."""

import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.whole_file import part_of, whole_file


def test_the_old_text_stays_until_the_new_one_is_whole(tmp_path):
    out = tmp_path / "out"
    out.write_text("old")
    with whole_file(out) as file:
        file.write("new")
        assert out.read_text() == "old"
    assert out.read_text() == "new" and list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("error", [OSError("no space"), KeyboardInterrupt()])
def test_what_fails_leaves_nothing(tmp_path, error):
    out = tmp_path / "out"
    with pytest.raises(type(error)), whole_file(out) as file:
        file.write("half")
        raise error
    assert list(tmp_path.iterdir()) == []


def test_one_writer_at_a_time(tmp_path):
    out = tmp_path / "out"
    with whole_file(out) as file:
        file.write("first")
        with pytest.raises(UserError, match="is being written by another run"), whole_file(out):
            pass
    assert out.read_text() == "first"


def test_what_a_killed_process_left_is_taken_over(tmp_path):
    out = tmp_path / "out"
    part_of(out).write_text("half of something longer")
    with whole_file(out) as file:
        file.write("whole")
    assert out.read_text() == "whole" and list(tmp_path.iterdir()) == [out]


def test_a_name_taken_while_the_lock_was_awaited(tmp_path, monkeypatch):
    """The other one finishes between our opening of its file and our lock on it."""
    out, tries = tmp_path / "out", []
    real = __import__("fcntl").flock

    def finish_first(file, how):
        tries.append(how)
        if len(tries) == 1:
            part_of(out).rename(out)
            out.write_text("of the other")
        return real(file, how)

    monkeypatch.setattr("fcntl.flock", finish_first)
    with whole_file(out) as file:
        assert out.read_text() == "of the other"
        file.write("ours")
    assert out.read_text() == "ours" and len(tries) == 2


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    def unsupported(file, how):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", unsupported)
    with whole_file(tmp_path / "out") as file:
        file.write("text")
    assert (tmp_path / "out").read_text() == "text"
