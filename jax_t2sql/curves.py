"""The curves of a run as Plotly figures: one for each panel with data."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from jax_t2sql.panels import PANELS, Line, Panel
from jax_t2sql.stats import wilson
from jax_t2sql.tracking import spread

MAX_POINTS = 1_500  # of one curve, so that the page stays quick however long the run was

# Legible on both the light and the dark ground (contrast at least 3 : 1); dashes tell the lines
# apart without colour.
_COLOURS = ("#2f7fd6", "#d9700f", "#1f9d74", "#c04b9b")
_DASHES = ("solid", "dash", "dot", "dashdot")


def build_figures(rows: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Plotly figures of the panels with data, and the titles of those without.

    A figure is ``{"title", "about", "summary", "legend", "data", "layout"}``, ready for JSON.
    """
    figures, absent = [], []
    for panel in PANELS:
        warmup = panel.phase == "warmup"
        chosen = [row for row in rows if (row.get("phase") == "warmup") == warmup]
        traces, summary = [], []
        for number, line in enumerate(panel.lines):
            steps, values = _series(chosen, line.key)
            if steps:
                colour, dash = _COLOURS[number], _DASHES[number]
                traces += _band(chosen, colour) if line.key == "eval_accuracy" else []
                traces += _curves(steps, values, line, panel.axis, colour, dash)
                summary.append(_summary(line, values, panel.axis))
        if traces:
            figure = go.Figure(traces, _layout(panel)).to_plotly_json()
            words = {"title": panel.title, "about": panel.about, "summary": "; ".join(summary)}
            legend = [_swatch(trace) for trace in traces if trace.name]
            figures.append(
                words | {"legend": legend, "data": figure["data"], "layout": figure["layout"]}
            )
        else:
            absent.append(panel.title.lower())
    return figures, absent


def _series(rows: Sequence[Mapping[str, Any]], key: str) -> tuple[list[int], list[float | None]]:
    """Steps and values where the metric was recorded; None where it was not finite."""
    found = {}
    for row in rows:
        if key in row:
            value = row[key]
            number = isinstance(value, (int, float)) and math.isfinite(value)
            found[row["step"]] = float(value) if number else None
    if all(value is None for value in found.values()):
        return [], []
    steps = sorted(found)
    return steps, [found[step] for step in steps]


def _curves(
    steps: list[int],
    values: list[float | None],
    line: Line,
    axis: str,
    colour: str,
    dash: str,
) -> list[go.Scatter]:
    window = len(values) // 20
    smooth = line.smooth and window >= 3
    few = len(values) <= 40

    def curve(
        name: str, values: list[float | None], *, opacity: float = 1, **style: Any
    ) -> go.Scatter:
        kept = _thin(values)
        return go.Scatter(
            x=[steps[i] for i in kept],
            y=[_drawable(values[i], axis) for i in kept],
            name=name,
            mode="lines+markers" if few else "lines",
            marker={"size": 5, "color": colour},
            hovertemplate="%{y:.1%}" if axis == "share" else "%{y:.4g}",
            line={"color": colour} | style,
            opacity=opacity,
        )

    bold = {"width": 2, "dash": dash}
    if not smooth:
        return [curve(line.label, values, **bold)]
    return [
        curve(line.label, values, opacity=0.5, width=1.2),
        curve(f"{line.label}, mean of {window} steps", _running_mean(values, window), **bold),
    ]


def _drawable(value: float | None, axis: str) -> float | None:
    """The value rounded to what a screen can show; a logarithmic axis has no place for 0."""
    if value is None or (axis == "log" and value <= 0):
        return None
    return float(f"{value:.6g}")


def _band(rows: Sequence[Mapping[str, Any]], colour: str) -> list[go.Scatter]:
    """The Wilson interval of the held-out accuracy as a filled band."""
    bounds = {}
    for row in rows:
        accuracy, n = row.get("eval_accuracy"), row.get("eval_n")
        if isinstance(accuracy, (int, float)) and isinstance(n, int) and n > 0:
            correct = row.get("eval_correct", accuracy * n)
            if isinstance(correct, (int, float)) and 0 <= correct <= n:
                bounds[row["step"]] = wilson(correct, n)
    steps = [sorted(bounds)[i] for i in spread(len(bounds), MAX_POINTS)]
    hidden = {"mode": "lines", "line": {"width": 0, "color": colour}, "hoverinfo": "skip"}
    return [
        go.Scatter(x=steps, y=[bounds[s][0] for s in steps], **hidden),
        go.Scatter(
            x=steps,
            y=[bounds[s][1] for s in steps],
            name="95 % interval",
            fill="tonexty",
            fillcolor=f"rgba({int(colour[1:3], 16)},{int(colour[3:5], 16)},"
            f"{int(colour[5:7], 16)},0.18)",
            **hidden,
        ),
    ] * bool(bounds)


def _swatch(trace: go.Scatter) -> dict[str, Any]:
    """A curve's entry in the legend, which the page draws itself so that it wraps on a phone."""
    dashes = {"solid": "none", "dash": "6 4", "dot": "2 3", "dashdot": "7 3 2 3"}
    filled = trace.fill is not None
    return {
        "label": trace.name,
        "colour": trace.line.color,
        "dashes": dashes[trace.line.dash or "solid"],
        "width": 9 if filled else trace.line.width + 0.5,
        "opacity": 0.25 if filled else trace.opacity,
    }


def _layout(panel: Panel) -> dict[str, Any]:
    """What does not depend on the reader's theme; the page's script adds that."""
    yaxis = {
        "share": {"tickformat": ".2~%", "rangemode": "tozero", "nticks": 6},
        "log": {"type": "log", "exponentformat": "power", "nticks": 6},
        "number": {"exponentformat": "power", "nticks": 6},
    }[panel.axis]
    return {
        "template": None,
        "height": 250,
        "margin": {"l": 54, "r": 12, "t": 8, "b": 36},
        "hovermode": "x unified",
        "showlegend": False,
        "xaxis": {"title": {"text": "step", "standoff": 6}, "nticks": 8},
        "yaxis": yaxis,
    }


def _thin(values: Sequence[float | None]) -> list[int]:
    """Indices of at most ``MAX_POINTS`` values, among them the extremes of every stretch.

    Evenly spaced points would hide spikes, which are what one looks for.
    """
    n, buckets = len(values), MAX_POINTS // 2 - 1
    if n <= MAX_POINTS:
        return list(range(n))
    kept = {0, n - 1}
    for b in range(buckets):
        stretch = range(b * n // buckets, (b + 1) * n // buckets)
        known = [i for i in stretch if values[i] is not None] or [stretch[0]]
        kept |= {min(known, key=lambda i: values[i] or 0), max(known, key=lambda i: values[i] or 0)}
    return sorted(kept)


def _running_mean(values: Sequence[float | None], window: int) -> list[float | None]:
    """Mean of the last ``window`` recorded values up to each step."""
    means: list[float | None] = []
    sums = [0.0]
    for value in values:
        if value is not None:
            sums.append(sums[-1] + value)
        count = min(window, len(sums) - 1)
        means.append((sums[-1] - sums[-1 - count]) / count if count else None)
    return means


def _summary(line: Line, values: Sequence[float | None], axis: str) -> str:
    """The curve in words, for readers who cannot see it."""
    known = [value for value in values if value is not None]
    form = "{:.1%}" if axis == "share" else "{:.3g}"
    first, last, low, high = (form.format(v) for v in (known[0], known[-1], min(known), max(known)))
    return f"{line.label}: first {first}, last {last}, lowest {low}, highest {high}"
