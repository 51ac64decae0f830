"""The charts of an evaluation's page, as Plotly figures ready for JSON.

A figure is ``{"title", "about", "summary", "data", "layout"}``; ``summary`` says it in words for
readers who cannot see it. Colours that depend on the reader's theme are the page's to add.
"""

from collections.abc import Mapping, Sequence
from typing import Any

# Legible on a light and on a dark ground; markers and dashes tell them apart without colour.
BLUE, ORANGE, GREEN, PURPLE = "#2f7fd6", "#d9700f", "#1f9d74", "#c04b9b"
_ROW = 26  # pixels a bar takes
_MOST_ROWS = 40

Figure = dict[str, Any]


def shares_figure(
    title: str, about: str, shares: Mapping[str, Mapping[str, Any]], *, proxy: float | None = None
) -> Figure | None:
    """Shares with their 95 % intervals, one a row; None without any.

    Args:
      shares: figures as of `summary.share` by name; of more than forty the most frequent.
      proxy: a stated accuracy, drawn as a line.
    """
    known = {name: part for name, part in shares.items() if part.get("accuracy") is not None}
    if not known:
        return None
    if len(known) > _MOST_ROWS:
        frequent = sorted(known, key=lambda name: -known[name]["n"])[:_MOST_ROWS]
        known = {name: part for name, part in known.items() if name in frequent}
        about = f"{about} The {_MOST_ROWS} with most questions of {len(shares)}."
    # Plotly draws the first row at the bottom.
    rows = list(known.items())[::-1]
    accuracy = [part["accuracy"] for _, part in rows]
    trace = {
        "type": "scatter",
        "mode": "markers",
        "orientation": "h",
        "x": accuracy,
        "y": [name for name, _ in rows],
        "marker": {"size": 10, "color": BLUE},
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [part["wilson_high"] - part["accuracy"] for _, part in rows],
            "arrayminus": [part["accuracy"] - part["wilson_low"] for _, part in rows],
            "color": BLUE,
            "thickness": 2.5,
            "width": 5,
        },
        "text": [
            f"{part['accuracy']:.1%} ({part['wilson_low']:.1%} to {part['wilson_high']:.1%}),"
            f" n = {part['n']}"
            for _, part in rows
        ],
        "hovertemplate": "%{text}<extra></extra>",
    }
    layout = base_layout(height=70 + _ROW * len(rows))
    layout["xaxis"] |= {"tickformat": ".0%", "range": [-0.01, 1.01], "nticks": 6}
    layout["yaxis"] |= {"type": "category", "automargin": True}
    if proxy is not None:
        layout["shapes"] = [_line(proxy)]
    words = "; ".join(f"{name} {part['accuracy']:.1%} of {part['n']}" for name, part in rows[::-1])
    return figure(title, about, words, [trace], layout)


def _line(at: float) -> dict[str, Any]:
    style = {"color": ORANGE, "width": 2, "dash": "dash"}
    return {"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1, "line": style}


def consistency_figure(votes: Mapping[str, Any], single: float | None) -> Figure | None:
    """Accuracy of voting among n candidates, with its interval, and pass@n.

    Args:
      votes: n, accuracy, low, high and, if known, pass_at_k; lists of one length.
      single: accuracy of the one greedy answer, if there is one.
    """
    n = votes.get("n") or []
    if not n:
        return None
    traces = [
        curve(n, votes["high"], "", BLUE, hidden=True),
        curve(n, votes["low"], "", BLUE, hidden=True) | {"fill": "tonexty", "fillcolor": _faint},
        curve(n, votes["accuracy"], "vote", BLUE),
    ]
    words = f"vote of 1 {votes['accuracy'][0]:.1%}, of {n[-1]} {votes['accuracy'][-1]:.1%}"
    if votes.get("pass_at_k"):
        traces.append(curve(n, votes["pass_at_k"], "pass@n", GREEN, dash="dot"))
        words += f"; pass@{n[-1]} {votes['pass_at_k'][-1]:.1%}"
    if single is not None:
        traces.append(curve([n[0], n[-1]], [single] * 2, "greedy", ORANGE, dash="dash"))
    layout = base_layout(height=300, legend=True)
    layout["xaxis"] |= {"title": {"text": "candidates"}, "type": "log", "tickvals": _ticks(n)}
    layout["yaxis"] |= {"tickformat": ".0%", "nticks": 6}
    about = (
        "The largest group of equal results answers, ties at random. The band is the 95 % interval;"
        " pass@n counts a question if any of n candidates is right."
    )
    return figure("Self-consistency", about, words, traces, layout)


_faint = "rgba(47,127,214,0.16)"


def _ticks(n: Sequence[int]) -> list[int]:
    """Powers of two, and the last."""
    return sorted({value for value in n if value & (value - 1) == 0} | {n[-1]})


def lines_figure(
    title: str,
    about: str,
    xs: Sequence[float],
    lines: Mapping[str, Sequence[float | None]],
    *,
    x_title: str,
    band: tuple[Sequence[float], Sequence[float]] | None = None,
) -> Figure:
    """Shares over steps, one line a name; the band belongs to the first."""
    traces = []
    if band:
        traces += [
            curve(xs, band[1], "", BLUE, hidden=True),
            curve(xs, band[0], "", BLUE, hidden=True) | {"fill": "tonexty", "fillcolor": _faint},
        ]
    styles = ((BLUE, "solid"), (GREEN, "dot"), (PURPLE, "dashdot"), (ORANGE, "dash"))
    words = []
    for (name, values), (colour, dash) in zip(lines.items(), styles, strict=False):
        traces.append(curve(xs, values, name, colour, dash=dash))
        known = [value for value in values if value is not None]
        words.append(f"{name}: first {known[0]:.1%}, last {known[-1]:.1%}" if known else name)
    layout = base_layout(height=340, legend=len(lines) > 1)
    layout["xaxis"] |= {"title": {"text": x_title}}
    layout["yaxis"] |= {"tickformat": ".0%", "nticks": 6, "rangemode": "tozero"}
    return figure(title, about, "; ".join(words), traces, layout)


def curve(
    x: Sequence[float],
    y: Sequence[float | None],
    name: str,
    colour: str,
    *,
    dash: str = "solid",
    hidden: bool = False,
) -> dict[str, Any]:
    """A line with a marker at each point; a hidden one bounds a band."""
    return {
        "type": "scatter",
        "mode": "lines" if hidden else "lines+markers",
        "x": list(x),
        "y": list(y),
        "name": name,
        "showlegend": bool(name),
        "line": {"color": colour, "width": 0 if hidden else 2.5, "dash": dash},
        "marker": {"size": 6, "color": colour},
        "hoverinfo": "skip" if hidden else "all",
        **({} if hidden else {"hovertemplate": f"%{{x}}: %{{y:.1%}}<extra>{name}</extra>"}),
    }


def base_layout(*, height: int, legend: bool = False) -> dict[str, Any]:
    """What does not depend on the reader's theme."""
    return {
        "template": None,
        "height": height,
        "margin": {"l": 50, "r": 16, "t": 8, "b": 40},
        "showlegend": legend,
        "legend": {
            "orientation": "h",
            "traceorder": "normal",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
        },
        "xaxis": {},
        "yaxis": {},
    }


def figure(title: str, about: str, words: str, data: list, layout: dict[str, Any]) -> Figure:
    """A chart with what is said of it."""
    return {"title": title, "about": about, "summary": words, "data": data, "layout": layout}
