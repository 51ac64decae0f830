"""What a sampler says, and how often."""

import pytest

from jax_t2sql import sample_voice
from jax_t2sql.sample_voice import Voice


@pytest.fixture
def now(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(sample_voice.time, "monotonic", lambda: clock[0])
    return clock


def test_a_server_that_is_away_is_said_now_and_then(now):
    said = []
    voice = Voice(said.append, say_every=30)
    for second in range(70):
        now[0] = second
        voice.server(f"/v1/{'models' if second % 2 else 'completions'}: refused")
    voice.server("")
    assert said == [
        "the server: /v1/completions: refused",
        "the server: /v1/completions: refused (30 s)",
        "the server: /v1/completions: refused (60 s)",
        "the server answers again (after 69 s)",
    ]
    assert voice.last_error == ""


def test_a_reason_to_wait_is_said_once_it_has_lasted(now):
    said = []
    voice = Voice(said.append, say_every=30)
    for second in range(60):
        now[0] = second
        voice.waits("no task" if second != 20 else None, after=10)
    assert said == ["waiting: no task"] * 2, "at 10 s, and 10 s after the one at which it worked"
    voice.waits("no adapter")
    assert said[-1] == "waiting: no adapter"
