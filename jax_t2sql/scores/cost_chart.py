"""Accuracy over what a question costs, of one evaluation or of several."""

from collections.abc import Mapping, Sequence
from typing import Any

from jax_t2sql.scores.figures import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    Figure,
    base_layout,
    curve,
    figure,
)

_STYLES = tuple(
    zip((BLUE, ORANGE, GREEN, PURPLE), ("circle", "diamond", "square", "x"), strict=True)
)


def cost_figure(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> Figure | None:
    """The chart; None where no run tells its cost.

    In dollars where every run that tells anything tells them, else in tokens. An answer counts at
    the mean price of all answers of its run, so the vote of n costs n times as much.

    Args:
      runs: names, and what results.json holds.
    """
    known = [(name, results) for name, results in runs if _price(results, "tokens") is not None]
    in_dollars = [run for run in runs if _price(run[1], "dollars") is not None]
    unit = "dollars" if in_dollars and len(in_dollars) >= len(known) else "tokens"
    form = "${:.2g}" if unit == "dollars" else "{:,.0f} tokens"
    traces: list[dict[str, Any]] = []
    for number, (name, results) in enumerate(in_dollars if unit == "dollars" else known):
        points = _points(results, _price(results, unit))
        if not points:
            continue
        colour, symbol = _STYLES[number % len(_STYLES)]
        votes = [point for point in points if point[2].startswith("vote")]
        # Apart: a greedy answer is no vote of one, though it costs as much.
        for part in (votes, [point for point in points if point not in votes]):
            if not part:
                continue
            trace = curve([p[0] for p in part], [p[1] for p in part], name, colour)
            alone = part is not votes and bool(votes)
            trace["marker"] |= {"size": 13 if alone else 9, "symbol": symbol}
            trace |= {"showlegend": not alone, "hovertemplate": "%{text}<extra></extra>"}
            told = [f"{name}, {how}: {form.format(x)} a question, {y:.1%}" for x, y, how in part]
            traces.append(trace | {"text": told})
    if not traces:
        return None
    layout = base_layout(height=300, legend=sum(t["showlegend"] for t in traces) > 1)
    layout["xaxis"] |= {
        "title": {"text": f"{'US dollars' if unit == 'dollars' else 'tokens'} a question"},
        "nticks": 6,
        "rangemode": "tozero",
    }
    shares = [y for trace in traces for y in trace["y"]]
    room = [max(-0.01, min(shares) - 0.05), min(1.01, max(shares) + 0.05)]
    layout["yaxis"] |= {"tickformat": ".0%", "nticks": 6, "range": room}
    words = "; ".join(text for trace in traces for text in trace["text"])
    about = (
        "The greedy answer (large, where there are votes too), and votes of n candidates at n times"
        " the mean price of an answer. Give report --beside RUN to see other evaluations here."
    )
    return figure("Accuracy and cost", about, words, traces, layout)


def _price(results: Mapping[str, Any], unit: str) -> float | None:
    """Of one answer."""
    cost = results.get("cost") or {}
    if unit == "dollars":
        answers, total = cost.get("answers"), cost.get("dollars")
    else:
        answers = cost.get("tokens_known_of")
        total = (cost.get("prompt_tokens") or 0) + (cost.get("completion_tokens") or 0)
    return total / answers if answers and total is not None else None


def _points(results: Mapping[str, Any], price: float) -> list[tuple[float, float, str]]:
    """Cost, accuracy and what gives them, cheapest first."""
    votes = results.get("self_consistency") or {}
    points = [
        (price * n, accuracy, f"vote of {n}")
        for n, accuracy in zip(votes.get("n", ()), votes.get("accuracy", ()), strict=True)
        if n & (n - 1) == 0 or n == votes["n"][-1]
    ]
    decoding, accuracy = results.get("decoding", "greedy"), results.get("accuracy")
    if accuracy is not None and (decoding == "greedy" or not points):
        points.append((price, accuracy, decoding))
    return sorted(points)
