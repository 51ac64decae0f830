"""The results as a Markdown table with intervals, and as JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from arms import CLAIMS, Claim
from measure import Value

from jax_t2sql.stats import wilson

# Of Student's t, two-sided 95 %, by degrees of freedom.
_T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}

# By claim and arm: the measures of each seed that is done.
Results = Mapping[str, Mapping[str, Mapping[int, Mapping[str, Value]]]]


def write(results: Results, out: Path, *, size: str) -> str:
    """Writes claims.md and claims.json into a folder; returns the table."""
    lines = [
        "| claim | measure | run | mean of seeds | 95 % interval | against the first run |",
        "|---|---|---|---|---|---|",
    ]
    for claim in CLAIMS:
        lines += _rows(claim, results.get(claim.letter, {}))
    text = f"{size}\n\n" + "\n".join(lines) + "\n"
    for name, content in (("claims.md", text), ("claims.json", json.dumps(results, indent=2))):
        draft = out / (name + ".tmp")
        draft.write_text(content + "\n" * (name == "claims.json"))
        draft.replace(out / name)
    return text


def _rows(claim: Claim, arms: Mapping[str, Mapping[int, Mapping[str, Value]]]) -> list[str]:
    rows = []
    first = arms.get(claim.arms[0].name, {})
    names = list(next(iter(first.values()), {}))
    for name in names:
        for arm in claim.arms:
            seeds = arms.get(arm.name, {})
            if not seeds:
                continue
            values = {seed: found[name] for seed, found in seeds.items()}
            against = ""
            if arm is not claim.arms[0]:
                common = sorted(values.keys() & first.keys())
                pairs = [number(values[s]) - number(first[s][name]) for s in common]
                against = _difference(pairs, is_share=isinstance(values[common[0]], (tuple, list)))
            label = f"**({claim.letter})** {claim.says}" if not rows else ""
            rows.append(
                f"| {label} | {name} | {arm.name} | {_mean(values)} | {_interval(values)}"
                f" | {against} |"
            )
    return rows


def number(value: Value) -> float:
    """A share or a plain number as a number."""
    if isinstance(value, (tuple, list)):
        return value[0] / value[1] if value[1] else float("nan")
    return value


def _mean(values: Mapping[int, Value]) -> str:
    mean = sum(map(number, values.values())) / len(values)
    if math.isnan(mean):
        return "none"
    share = isinstance(next(iter(values.values())), (tuple, list))
    seeds = f" ({len(values)})" if len(values) != 3 else ""
    return (f"{mean:.1%}" if share else f"{mean:.3g}") + seeds


def _interval(values: Mapping[int, Value]) -> str:
    """Wilson's for a share, over the answers of all seeds; else lowest and highest seed."""
    listed = list(values.values())
    if any(math.isnan(number(value)) for value in listed):
        return ""
    if isinstance(listed[0], (tuple, list)):
        total = sum(n for _, n in listed)
        low, high = wilson(sum(k for k, _ in listed), total)
        return f"{low:.1%} to {high:.1%}"
    return f"{min(listed):.3g} to {max(listed):.3g} (seeds)"


def _difference(pairs: Sequence[float], *, is_share: bool) -> str:
    """Mean difference of runs of the same seed, with the t interval over seeds."""
    scale, unit = (100, " points") if is_share else (1, "")
    mean = sum(pairs) / len(pairs)
    if math.isnan(mean):
        return ""
    text = f"{scale * mean:+.3g}{unit}"
    if len(pairs) < 2:
        return text
    spread = math.sqrt(sum((x - mean) ** 2 for x in pairs) / (len(pairs) - 1))
    half = _T95.get(len(pairs) - 1, 2.0) * spread / math.sqrt(len(pairs))
    return f"{text} ({scale * (mean - half):+.3g} to {scale * (mean + half):+.3g})"
