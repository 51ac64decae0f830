"""SIGTERM is noted, breaks off what may be broken off, ends the process if all else fails."""

import os
import signal
import subprocess
import sys

import pytest

from jax_t2sql.rl.preemption import Preempted, Preemption


def tell():
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def never_late():
    with Preemption(seconds=3600) as preemption:
        yield preemption
    if preemption._timer:
        preemption._timer.cancel()


def test_a_step_goes_on_to_its_end(never_late):
    tell()
    assert never_late.requested


def test_what_is_worth_nothing_is_broken_off(never_late):
    with pytest.raises(Preempted), never_late.abortable():
        tell()
        raise AssertionError("not reached")
    with pytest.raises(Preempted), never_late.abortable():
        raise AssertionError("nor begun again")


def test_the_handler_before_comes_back():
    before = signal.getsignal(signal.SIGTERM)
    with Preemption():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_step_that_takes_too_long_is_given_up():
    code = (
        "import os, signal, threading\n"
        "from jax_t2sql.rl.preemption import Preemption\n"
        "with Preemption(seconds=0.05):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    threading.Event().wait()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 143 and "the same command goes on" in done.stderr
