"""One self-contained page about a pool: figures, families, join paths, samples."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

_PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title>
<style>
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .7rem;text-align:left;
border-bottom:1px solid #ddd;vertical-align:top}th{background:#f4f4f4}td.n{text-align:right}
pre{white-space:pre-wrap;margin:0;font-size:13px}.bar{background:#4a7;height:.7rem}
input{padding:.3rem;width:20rem}small{color:#666}
</style></head><body>
<h1>{{ title }}</h1>
<p>{{ report.questions }} questions; {{ report.join_paths_covered }} of {{ report.join_paths }} join
paths of one to three hops; {{ report.families|length }} families.</p>
{% for name, counts in charts %}<h2>{{ name }}</h2><table>
{% for label, count, width in counts %}<tr><td>{{ label }}</td><td class="n">{{ count }}</td>
<td style="width:24rem"><div class="bar" style="width:{{ width }}%"></div></td></tr>{% endfor %}
</table>{% endfor %}
{% if report.join_paths_missed %}<h2>Join paths without a question</h2><ul>
{% for path in report.join_paths_missed %}<li>{{ path }}</li>{% endfor %}</ul>{% endif %}
{% if report.features %}<h2>Pool and test set</h2>
<table><tr><th>feature</th><th>pool</th><th>test</th></tr>
{% for name, pool, test in report.features %}<tr><td>{{ name }}</td>
<td class="n">{{ "%.1f"|format(100 * pool) }} %</td>
<td class="n">{{ "%.1f"|format(100 * test) }} %</td></tr>{% endfor %}</table>
<h3>In the test set alone</h3><p>{{ report.missing_in_pool|join("; ") or "nothing" }}</p>{% endif %}
<h2>Samples</h2><p><input id="find" placeholder="filter"></p>
<table id="rows"><tr><th>question</th><th>query</th><th>result</th></tr>
{% for row, result in samples %}<tr><td>{{ row.question }}<br>
<small>{{ row.family }}, tier {{ row.tier }}, {{ row.register }}{% if row.evidence %}<br>
{{ row.evidence }}{% endif %}</small></td><td><pre>{{ row.SQL }}</pre></td>
<td><pre>{{ result }}</pre></td></tr>{% endfor %}</table>
<script>
document.getElementById("find").oninput = e => {
  for (const row of [...document.querySelectorAll("#rows tr")].slice(1))
    row.hidden = !row.textContent.toLowerCase().includes(e.target.value.toLowerCase());
};
</script></body></html>
"""


def overview_page(
    rows: Sequence[dict], report: dict, results: dict[str, str], *, samples: int = 120
) -> str:
    """The page as HTML.

    Args:
      rows: of the pool.
      report: of `build.report`.
      results: answers as text, by SQL; rows without one are shown without.
      samples: how many rows to show.
    """
    from jinja2 import Environment

    charts = [
        ("Tiers", Counter(str(row["tier"]) for row in rows)),
        ("Registers", Counter(row["register"] for row in rows)),
        ("Families", Counter(row["family"] for row in rows)),
        ("Turned away, by check", Counter(report["turned_away"])),
    ]
    drawn = random.Random(0).sample(list(rows), min(samples, len(rows)))
    template = Environment(autoescape=True).from_string(_PAGE)
    return template.render(
        title=f"Questions for {rows[0]['db_id']}",
        report=report,
        charts=[(name, _bars(counts)) for name, counts in charts if counts],
        samples=[(row, results.get(row["SQL"], "")) for row in drawn],
    )


def _bars(counts: Counter) -> list[tuple[str, int, int]]:
    most = max(counts.values())
    return [(name, count, round(100 * count / most)) for name, count in counts.most_common()]
