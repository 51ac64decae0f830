"""What a run shows while it runs: a live panel in a terminal, one plain line a step elsewhere.

The display never decides the fate of a run: whatever the terminal does, errors end in silence or
in plain lines, and the record in ``metrics.jsonl`` is complete without it.
"""

import math
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO

from jax_t2sql.stats import wilson

# Metric, short label, format. The order is that of the display; absent metrics are left out.
_SHOWN = (
    ("reward_mean", "reward", "{:+.3f}"),
    ("accuracy_train", "accuracy", "{:.1%}"),
    ("refuted_share", "refuted", "{:.0%}"),
    ("zero_signal_share", "no-signal", "{:.0%}"),
    ("loss", "loss", "{:.4g}"),
    ("ratio_mean", "ratio", "{:.4f}"),
    ("logprob_gap", "gap", "{:.1e}"),
    ("completion_tokens_mean", "tokens", "{:.0f}"),
    ("tokens_per_second", "tok/s", "{:.0f}"),
    ("staleness_max", "stalest", "{:.0f}"),
    ("idle_share", "idle", "{:.0%}"),
    ("bus_share", "bus", "{:.0%}"),
)
_BLOCKS, _ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Progress:
    """Shows a run's progress; a context manager.

    Args:
      total_steps: steps of the first phase, until ``phase`` says otherwise.
      stream: where to write; standard output by default.
      clock: monotonic seconds, for the estimate of the time left.
    """

    def __init__(
        self,
        total_steps: int,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._stream = sys.stdout if stream is None else stream
        self._clock = clock
        self._live: Any = None
        self._accuracies: deque[float] = deque(maxlen=240)
        self._metrics: dict[str, Any] = {}
        self._evaluation = ""
        self.phase("rl", total_steps)

    def phase(self, name: str, total: int) -> None:
        """Begins a phase ("warmup", "rl", …) of ``total`` steps."""
        self._name, self._total, self._done = name, total, 0
        self._times: deque[tuple[float, int]] = deque(maxlen=17)
        self._metrics = {}
        self._refresh()

    def step(self, n: int, metrics: Mapping[str, Any], *, note: str = "") -> None:
        """Shows that ``n`` steps of the phase are done. Metrics have the names of the record.

        note: of this step, in a word; lines show it, the live panel does not.
        """
        self._done = n
        self._metrics = dict(metrics)
        self._times.append((self._clock(), n))
        if _is_number(metrics.get("accuracy_train")):
            self._accuracies.append(float(metrics["accuracy_train"]))
        where, evaluation = f"{self._name} {n}/{self._total}", _evaluation(metrics)
        if evaluation:
            self._evaluation = f"{evaluation}, {where}"
        if self._live is None:
            fields = [f"{where} {note}".rstrip()]
            fields += [f"{label} {text}" for label, text in _fields(metrics)]
            fields += [f"held out {evaluation}"] if evaluation else []
            self._print("  ".join([*fields, f"left {self._left()}"]))
        else:
            self._refresh()

    def message(self, text: str) -> None:
        """Writes a line of its own, above the live panel if there is one."""
        text = self._encodable(_CONTROL.sub("?", text))  # model output must not drive the terminal
        if self._live is None:
            self._print(text)
            return
        try:
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)
        except Exception:  # noqa: BLE001
            self._fall_back()
            self._print(text)

    def __enter__(self) -> "Progress":
        if self._is_terminal():
            try:
                from rich.console import Console
                from rich.live import Live

                console = Console(file=self._stream, force_terminal=True)
                if not console.is_dumb_terminal:
                    self._live = Live(self, console=console, refresh_per_second=2)
                    self._live.start()
            except Exception:  # noqa: BLE001  (a terminal rich cannot handle)
                self._fall_back()
        return self

    def __exit__(self, *exception: object) -> None:
        self._fall_back()

    def _is_terminal(self) -> bool:
        try:
            return self._stream.isatty() and os.environ.get("TERM") != "dumb"
        except ValueError:  # closed
            return False

    def _fall_back(self) -> None:
        """Ends the live panel, leaving its last state on the screen."""
        live, self._live = self._live, None
        if live is not None:
            try:
                live.stop()
            except Exception:  # noqa: BLE001
                return

    def _refresh(self) -> None:
        if self._live is not None:
            try:
                self._live.refresh()
            except Exception:  # noqa: BLE001
                self._fall_back()

    def _print(self, line: str) -> None:
        try:
            print(line, file=self._stream, flush=True)
        except (OSError, ValueError):  # hung up, full or closed: the run goes on
            return

    def _encodable(self, text: str) -> str:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        return text.encode(encoding, "backslashreplace").decode(encoding)

    def _left(self) -> str:
        """Time left in the phase at the pace of the last steps, "?" before there is one."""
        if len(self._times) < 2:
            return "?"
        (t0, n0), (t1, n1) = self._times[0], self._times[-1]
        if n1 <= n0:
            return "?"
        return duration((t1 - t0) / (n1 - n0) * max(0, self._total - n1))

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        """The live panel. Rich calls this from a thread of its own, too."""
        from rich import box
        from rich.columns import Columns
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        blocks = _ASCII_BLOCKS if options.ascii_only else _BLOCKS
        head = Table.grid(padding=(0, 1), expand=True)
        head.add_column(no_wrap=True)
        head.add_column(ratio=1)
        head.add_column(justify="right", no_wrap=True)
        head.add_row(
            Text(f"{self._name} {self._done}/{self._total}", style="bold"),
            ProgressBar(total=max(1, self._total), completed=self._done),
            Text(f"{self._left()} left"),
        )
        body = Table.grid(padding=(0, 1))
        body.add_column(style="dim", no_wrap=True)
        body.add_column()
        values = [
            Text(f"{label} ", style="dim").append(text, style="not dim")
            for label, text in _fields(self._metrics)
        ]
        if values:
            body.add_row("step", Columns(values, padding=(0, 2)))
        if self._accuracies:
            width = max(4, options.max_width - 24)
            line = sparkline(list(self._accuracies)[-width:], blocks=blocks)
            last = f"{self._accuracies[-1]:.0%}"
            body.add_row("accuracy", Text(line, style="cyan", no_wrap=True).append(f" {last}"))
        if self._evaluation:
            body.add_row("held out", Text(self._evaluation, style="bold green"))
        grid = Table.grid(expand=True)
        grid.add_row(head)
        grid.add_row(body)
        frame = box.ASCII if options.ascii_only else box.ROUNDED
        yield Panel(grid, box=frame, border_style="dim", title="jax_t2sql", title_align="left")


def sparkline(values: list[float], *, blocks: str = _BLOCKS) -> str:
    """Shares in [0, 1] as a row of blocks.

    >>> sparkline([0.0, 0.5, 1.0])
    '▁▅█'
    """
    top = len(blocks) - 1
    return "".join(blocks[min(top, max(0, int(value * top + 0.5)))] for value in values)


def duration(seconds: float) -> str:
    """Seconds in words short enough for a status line.

    >>> duration(8), duration(190), duration(7260)
    ('8s', '3m10s', '2h01m')
    """
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _fields(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Label and text of each known metric that is there."""
    fields = []
    for name, label, form in _SHOWN:
        if name in metrics:
            value = metrics[name]
            fields.append((label, form.format(value) if _is_number(value) else "not finite"))
    return fields


def _evaluation(metrics: Mapping[str, Any]) -> str:
    """The held-out accuracy with its interval, "" when the row holds none."""
    accuracy, size = metrics.get("eval_accuracy"), metrics.get("eval_n")
    if not _is_number(accuracy):
        return ""
    text = f"{accuracy:.1%}"
    if _is_number(size) and size > 0:
        low, high = wilson(accuracy * size, int(size))
        text += f" ({low:.1%}..{high:.1%}, n={int(size)})"
    return text
