import doctest
import fcntl
import io
import os
import struct
import termios
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_t2sql import progress as module
from jax_t2sql.progress import Progress, duration, sparkline

METRICS = {"reward_mean": 0.25, "accuracy_train": 0.4, "loss": 0.01, "tokens_per_second": 900.0}


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Terminal:
    """A pseudo-terminal; what was written to it is in ``text()`` once it is closed."""

    def __init__(self, columns=80, encoding="utf-8"):
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.stream = open(slave, "w", encoding=encoding)  # noqa: SIM115
        self._read = bytearray()
        self._reader = threading.Thread(target=self._drain)
        self._reader.start()

    def _drain(self):
        try:
            while block := os.read(self._master, 4096):
                self._read += block
        except OSError:  # EIO: the other side is closed
            pass

    def text(self):
        self.stream.close()
        self._reader.join()
        os.close(self._master)
        return self._read.decode(errors="replace")


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    # Rich prefers these to the size of the terminal itself.
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("LINES", raising=False)
    return Terminal


def drive(progress):
    with progress:
        progress.phase("warmup", 2)
        progress.step(1, {"loss": 3.0})
        progress.phase("rl", 4)
        progress.step(1, METRICS)
        progress.message("model said [red]\x1b[31mü")
        progress.step(2, METRICS | {"loss": None, "eval_accuracy": 0.5, "eval_n": 400})


def test_a_log_file_gets_one_plain_line_a_step(monkeypatch):
    # Neither variable may bring escape codes into a file.
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    stream, clock = io.StringIO(), Clock()
    with Progress(3, stream=stream, clock=clock) as progress:
        for n in (1, 2):
            clock.now += 30
            progress.step(n, METRICS)
    first, second = stream.getvalue().splitlines()
    assert first == "rl 1/3  reward +0.250  accuracy 40.0%  loss 0.01  tok/s 900  left ?"
    assert second.endswith("left 30s")


def test_plain_lines_tell_phase_evaluation_and_messages_without_escapes():
    stream = io.StringIO()
    drive(Progress(9, stream=stream))
    warmup, first, message, second = stream.getvalue().splitlines()
    assert warmup.startswith("warmup 1/2  loss 3") and first.startswith("rl 1/4")
    assert message == "model said [red]?[31mü"
    assert "loss not finite" in second
    assert "held out 50.0% (45.1%..54.9%, n=400)  left" in second


def test_an_evaluation_is_reported_once_in_a_log():
    stream = io.StringIO()
    with Progress(3, stream=stream) as progress:
        progress.step(1, {"eval_accuracy": 0.5})
        progress.step(2, {})
    first, second = stream.getvalue().splitlines()
    assert "held out 50.0%  left" in first and "held out" not in second


def test_a_terminal_gets_a_live_panel(terminal):
    screen = terminal()
    drive(Progress(9, stream=screen.stream))
    text = screen.text()
    last = text[text.rindex("╭") :]
    assert "rl 2/4" in last and "reward" in last and "▄" in last
    assert "50.0% (45.1%..54.9%, n=400), rl 2/4" in last
    assert "\x1b[31m" not in text  # what the model said does not drive the terminal
    assert text.rstrip().endswith("\x1b[?25h")  # the cursor is back


def test_no_color_keeps_the_panel_but_no_colour(terminal, monkeypatch):
    coloured, plain = terminal(), terminal()
    drive(Progress(9, stream=coloured.stream))
    monkeypatch.setenv("NO_COLOR", "1")
    drive(Progress(9, stream=plain.stream))
    assert "\x1b[36m" in coloured.text()
    text = plain.text()
    assert "╭" in text and "\x1b[36m" not in text and "\x1b[38;" not in text


def test_a_dumb_terminal_gets_plain_lines(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    screen = terminal()
    drive(Progress(9, stream=screen.stream))
    text = screen.text()
    assert "\x1b" not in text and text.count("\n") == 4


@pytest.mark.parametrize("columns", [0, 1, 3, 12, 40, 500])
def test_no_width_breaks_the_panel(terminal, columns):
    screen = terminal(columns)
    progress = Progress(9, stream=screen.stream)
    drive(progress)
    assert "╭" in screen.text()


def test_a_terminal_without_unicode_gets_ascii(terminal):
    screen = terminal(encoding="ascii")
    drive(Progress(9, stream=screen.stream))
    text = screen.text()
    assert text.isascii() and "\\xfc" in text
    last = text[text.rindex("+-") :] if "+-" in text else ""
    assert last and "rl 2/4" in text


def test_a_log_without_unicode_gets_escapes():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    drive(Progress(9, stream=stream))
    assert b"\\xfc" in raw.getvalue()


class Hangup(io.StringIO):
    def __init__(self, tty):
        super().__init__()
        self.tty = tty

    def isatty(self):
        return self.tty

    def write(self, text):
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("tty", [True, False])
def test_a_lost_terminal_does_not_stop_the_run(monkeypatch, tty):
    monkeypatch.setenv("TERM", "xterm")
    drive(Progress(9, stream=Hangup(tty)))


def test_a_closed_stream_does_not_stop_the_run():
    stream = io.StringIO()
    stream.close()
    drive(Progress(9, stream=stream))


def test_the_display_lets_exceptions_through(terminal):
    screen = terminal()
    with pytest.raises(KeyboardInterrupt), Progress(9, stream=screen.stream):
        raise KeyboardInterrupt
    assert screen.text().rstrip().endswith("\x1b[?25h")


def test_the_time_left_counts_from_where_a_resumed_run_began():
    stream, clock = io.StringIO(), Clock()
    with Progress(100, stream=stream, clock=clock) as progress:
        for n in (81, 82, 83):
            clock.now += 60
            progress.step(n, {})
    assert stream.getvalue().splitlines()[-1].endswith("left 17m00s")


@given(st.lists(st.floats(-0.5, 1.5), max_size=50))
def test_a_sparkline_is_monotone(values):
    line = sparkline(values)
    assert len(line) == len(values)
    assert list(sparkline(sorted(values))) == sorted(line)


@given(st.floats(0, 1e7))
def test_a_duration_is_short(seconds):
    assert len(duration(seconds)) <= 9


def test_the_examples_in_the_docstrings():
    assert doctest.testmod(module) == (0, 2)
