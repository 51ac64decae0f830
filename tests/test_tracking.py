import doctest
import json
import logging
import math
import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_t2sql import tracking
from jax_t2sql.errors import UserError
from jax_t2sql.tracking import Tracker, iterate, read_metrics, spread


def steps(run_dir, phase="rl"):
    return [row["step"] for row in read_metrics(run_dir) if row["phase"] == phase]


def episode(**fields):
    return {"question_id": 1, "question": "How many?", "turns": []} | fields


def test_a_row_is_on_disk_as_soon_as_it_is_logged(tmp_path):
    tracker = Tracker(tmp_path, tensorboard=False)
    tracker.log(1, {"loss": 0.5, "note": "first", "skipped": None})
    # Read while the tracker is still open: a crash now would lose nothing.
    assert read_metrics(tmp_path) == [
        {"step": 1, "phase": "rl", "loss": 0.5, "note": "first", "skipped": None}
    ]
    tracker.close()


def test_values_of_array_libraries_become_plain_numbers(tmp_path):
    with Tracker(tmp_path, tensorboard=False) as tracker:
        row = tracker.log(
            np.int64(2), {"a": np.float32(0.25), "b": np.array([3]), "c": np.bool_(True)}
        )
    assert row == {"step": 2, "phase": "rl", "a": 0.25, "b": 3, "c": True}
    assert read_metrics(tmp_path) == [row]


@pytest.mark.parametrize("value", [np.zeros(2), [1.0], {"a": 1}, object()])
def test_a_value_that_is_not_one_number_names_its_metric(tmp_path, value):
    with Tracker(tmp_path, tensorboard=False) as tracker:
        with pytest.raises(ValueError, match="metric 'loss'"):
            tracker.log(1, {"loss": value})
        tracker.log(1, {"loss": 1.0})
    assert steps(tmp_path) == [1]


def test_values_that_are_not_finite_are_null_and_reported(tmp_path, caplog):
    with Tracker(tmp_path, tensorboard=False) as tracker, caplog.at_level(logging.WARNING):
        tracker.log(7, {"loss": math.nan, "ratio_max": np.float32(np.inf), "lr": 0.1})
    (row,) = read_metrics(tmp_path)
    assert row["loss"] is None and row["ratio_max"] is None and row["lr"] == 0.1
    assert row["nonfinite"] == {"loss": "nan", "ratio_max": "inf"}
    assert "step 7" in caplog.text and "ratio_max" in caplog.text


def test_resuming_cuts_what_will_be_written_again(tmp_path):
    with Tracker(tmp_path, tensorboard=False) as tracker:
        for step in range(10):
            tracker.log(step, {"loss": 1.0}, phase="warmup")
        tracker.log(0, {"eval_accuracy": 0.3}, phase="eval")
        for step in range(1, 7):
            tracker.log(step, {"loss": 1.0})
            tracker.log_samples(step, [episode()])
        tracker.log(6, {"eval_accuracy": 0.4}, phase="eval")
    with Tracker(tmp_path, first_step=4, tensorboard=False) as tracker:
        for step in range(4, 9):
            tracker.log(step, {"loss": 2.0})
            tracker.log_samples(step, [episode()])
    assert steps(tmp_path, "warmup") == list(range(10))  # done before, not done again
    assert steps(tmp_path, "eval") == [0]
    assert steps(tmp_path) == list(range(1, 9))
    assert [row["loss"] for row in read_metrics(tmp_path)[-8:]] == [1.0] * 3 + [2.0] * 5
    assert [row["step"] for row in iterate(tmp_path / "samples.jsonl")] == list(range(1, 9))
    assert not list(tmp_path.glob("*.tmp"))


def test_reopening_without_a_first_step_keeps_all(tmp_path):
    for step in (1, 2):
        with Tracker(tmp_path, tensorboard=False) as tracker:
            tracker.log(step, {})
    assert steps(tmp_path) == [1, 2]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 5), st.data())
def test_a_crash_at_any_byte_costs_the_torn_line_only(rows, data):
    with tempfile.TemporaryDirectory() as directory:
        with Tracker(directory, tensorboard=False) as tracker:
            for step in range(rows):
                tracker.log(step, {"note": "é\n" * step})
        path = Path(directory) / "metrics.jsonl"
        whole = path.read_bytes()
        left = whole[: data.draw(st.integers(0, len(whole)))]
        path.write_bytes(left)
        assert len(read_metrics(directory)) == left.count(b"\n")
        with Tracker(directory, tensorboard=False) as tracker:
            tracker.log(99, {})
        assert steps(directory) == [*range(left.count(b"\n")), 99]
        assert all(json.loads(line) for line in path.read_bytes().splitlines())


def test_foreign_lines_are_passed_over_and_dropped(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(
        b'{"step": 1, "phase": "rl"}\n\xff\xfe\n[1]\n{"loss": 2}\n{"step": true}\n'
        b'{"step": 2, "phase": "rl"}\n'
    )
    assert steps(tmp_path) == [1, 2]
    Tracker(tmp_path, tensorboard=False).close()
    assert (tmp_path / "metrics.jsonl").read_bytes().count(b"\n") == 2


def test_samples_are_capped_and_survive_odd_content(tmp_path):
    odd = episode(
        gold_sql="SELECT '\udcfc'",  # an undecodable byte of a database
        reward=math.nan,
        terms={"equal": np.float32(1), "bonus": math.inf},
        turns=({"role": "tool", "text": "a\nb\u2028c"},),
    )
    with Tracker(tmp_path, samples_per_step=3, tensorboard=False) as tracker:
        tracker.log_samples(1, [odd | {"question_id": i} for i in range(9)])
        tracker.log_samples(2, [odd], phase="eval")
    rows = list(iterate(tmp_path / "samples.jsonl"))
    assert [(row["step"], row["phase"], row["question_id"]) for row in rows] == [
        (1, "rl", 0),
        (1, "rl", 4),
        (1, "rl", 8),
        (2, "eval", 1),
    ]
    assert rows[0]["gold_sql"] == odd["gold_sql"]
    assert rows[0]["reward"] is None and rows[0]["terms"] == {"equal": 1.0, "bonus": None}
    assert rows[0]["turns"] == [{"role": "tool", "text": "a\nb\u2028c"}]


def test_a_directory_that_cannot_be_written_is_a_user_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--workdir"):
        Tracker(tmp_path / "file")


@given(st.integers(0, 200), st.integers(0, 50))
def test_spread_is_even_and_within_bounds(n, k):
    chosen = spread(n, k)
    assert len(chosen) == min(n, k) and chosen == sorted(set(chosen))
    assert all(0 <= index < n for index in chosen)
    gaps = {b - a for a, b in zip(chosen, chosen[1:], strict=False)}
    assert not gaps or max(gaps) - min(gaps) <= 1


def read_events(directory):
    """Events of TensorBoard's record format: length, its checksum, payload, its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    for path in sorted(directory.iterdir()):
        data = path.read_bytes()
        while data:
            (size,) = struct.unpack("<Q", data[:8])
            yield Event.FromString(data[12 : 12 + size])
            data = data[16 + size :]


def test_tensorboard_gets_the_finite_numbers_of_each_phase(tmp_path):
    with Tracker(tmp_path) as tracker:
        tracker.log(3, {"loss": 0.5, "ratio_max": math.nan, "note": "text"})
        tracker.log(3, {"loss": 2.0}, phase="warmup")
    scalars = {
        phase: [
            (event.step, value.tag, value.simple_value)
            for event in read_events(tmp_path / "tensorboard" / phase)
            for value in event.summary.value
        ]
        for phase in ("rl", "warmup")
    }
    assert scalars == {"rl": [(3, "loss", 0.5)], "warmup": [(3, "loss", 2.0)]}


def test_tensorboard_is_told_to_forget_the_steps_done_again(tmp_path):
    with Tracker(tmp_path, first_step=5) as tracker:
        tracker.log(5, {"loss": 1.0})
        tracker.log(9, {"loss": 1.0}, phase="warmup")
    starts = {
        phase: [
            event.step
            for event in read_events(tmp_path / "tensorboard" / phase)
            if event.HasField("session_log")
        ]
        for phase in ("rl", "warmup")
    }
    assert starts == {"rl": [5], "warmup": []}


def test_the_examples_in_the_docstrings():
    assert doctest.testmod(tracking) == (0, 1)
