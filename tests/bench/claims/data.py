"""Question files of the experiments, made from the quickstart's world."""

import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path

from data_pipelines.corruption import corrupt
from data_pipelines.templates import Choices, grading_method, render_sql
from data_pipelines.templates_catalogue import TEMPLATES
from data_pipelines.templates_draw import draw, variants
from data_pipelines.templates_english import render_question
from data_pipelines.world import DATABASES
from jax_t2sql.sql import Limits, Sandbox, parse_mode, results_equal
from jax_t2sql.sql.profile import profile
from jax_t2sql.text2sql import load_problems

# Templates with a piece that at times makes no difference: a few per cent of their questions.
_COINCIDING = (
    "list + equals + compare", "distinct + compare", "top + equals", "aggregate + year",
    "aggregate + equals", "aggregate + null",
)  # fmt: skip
_DRAWS, _WORDINGS = 40_000, 4
# Never shown in the warm-up of claim (d), so that no sample answers them.
WITHHELD = ("null", "between")


def read(path: Path) -> list[dict]:
    """Rows of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write(path: Path, rows: Iterable[dict]) -> None:
    """Writes a JSONL file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    draft.replace(path)


def counting_doubles(world: Path, out: Path) -> None:
    """The world's files with doubles counted, so that DISTINCT matters."""
    for name in ("warmup", "train", "heldout"):
        rows = read(world / f"{name}.jsonl")
        for row in rows:
            if row["grading_method"] == "set":
                row["grading_method"] = "multiset"
        write(out / f"{name}.jsonl", rows)


def with_wrong_golds(clean: Path, databases: Path, out: Path, *, seed: int) -> None:
    """Training questions, half of whose golds are wrong by the published kinds."""
    made = corrupt(load_problems(clean), databases, share=0.5, seed=seed)
    golds = {problem.question_id: problem.gold_sql for problem in made.problems}
    rows = read(clean)
    for row in rows:
        row["SQL"] = golds[row["question_id"]]
        row["corruption"] = made.kinds.get(row["question_id"])
    write(out, rows)


def reasoning(sql: str) -> str:
    """The query after a short span that says what it will read and compute, as a comment."""
    found = profile(sql)
    words = [*sorted(found.tables), *sorted(found.aggregates | found.functions)]
    return f"/* {' , '.join(words)} */ {sql}"


def with_reasoning(path: Path, out: Path) -> None:
    """A question file whose SQL thinks first."""
    write(out, [row | {"SQL": reasoning(row["SQL"])} for row in read(path)])


def coincidences(first: Path, second: Path, out: Path, *, seed: int) -> None:
    """Questions for which a query that lacks one piece gives the right result on the first
    databases and a wrong one on the second; three tenths of the queries are held out."""
    rng = random.Random(f"coincidences/{seed}")
    databases = {database.db_id: database for database in DATABASES}
    templates = [template for template in TEMPLATES if template.name in _COINCIDING]
    found: dict[str, dict[str, Choices]] = {}
    with _Open(first) as one, _Open(second) as two:
        for _ in range(_DRAWS):
            try:
                choices = draw(DATABASES, rng.choice(templates), rng)
            except LookupError:
                continue
            database = databases[choices.db_id]
            sql, text = render_sql(database, choices), render_question(database, choices)
            wordings = found.get(sql, {})
            if text in wordings or len(wordings) >= _WORDINGS:
                continue
            if wordings or _coincides(choices, one.answer, two.answer):
                found.setdefault(sql, {})[text] = choices
    queries = rng.sample(sorted(found), len(found))
    held = queries[: 3 * len(queries) // 10]
    for name, part in (("heldout", held), ("train", queries[len(held) :])):
        rows = [
            {
                "question_id": f"coincidence-{name}-{number:03d}-{wording}",
                "db_id": choices.db_id,
                "question": text,
                "SQL": sql,
                "grading_method": grading_method(choices),
                "template": choices.template,
            }
            for number, sql in enumerate(part)
            for wording, (text, choices) in enumerate(found[sql].items())
        ]
        write(out / f"{name}.jsonl", rows)


def _coincides(choices: Choices, one: Callable, two: Callable) -> bool:
    mode = parse_mode(grading_method(choices))
    gold, there = one(choices), two(choices)
    if not gold or not there or all(value in (None, 0) for row in gold for value in row):
        return False
    return any(
        results_equal(gold, one(variant), mode) and not results_equal(there, two(variant), mode)
        for variant in variants(choices)
    )


class _Open:
    """Answers of choices on a world's databases."""

    def __init__(self, folder: Path) -> None:
        self._databases = {database.db_id: database for database in DATABASES}
        self._boxes = {
            db_id: Sandbox(folder / db_id / f"{db_id}.sqlite", limits=Limits())
            for db_id in self._databases
        }

    def answer(self, choices: Choices) -> list[tuple]:
        sql = render_sql(self._databases[choices.db_id], choices)
        return self._boxes[choices.db_id].execute(sql).rows

    def __enter__(self) -> "_Open":
        return self

    def __exit__(self, *_: object) -> None:
        for box in self._boxes.values():
            box.close()


def hint(sql: str) -> str:
    """The query's condition, or else its last clause: enough to go on, not the query."""
    for word in (" WHERE ", " GROUP BY ", " ORDER BY "):
        if word in sql:
            return word.strip() + " " + sql.partition(word)[2]
    return sql.partition(" FROM ")[0]


def is_withheld(row: dict) -> bool:
    """Whether a question's kind is kept from the warm-up of claim (d)."""
    return any(name in row["template"].split(" + ") for name in WITHHELD)


def with_hints(world: Path, out: Path) -> None:
    """A warm-up without some kinds of questions; and hints for all questions, in a file."""
    kept = [row for row in read(world / "warmup.jsonl") if not is_withheld(row)]
    write(out / "warmup.jsonl", kept)
    train = read(world / "train.jsonl")
    write(
        out / "hints.jsonl",
        [
            {"question_id": row["question_id"], "strength": "strong", "hint": hint(row["SQL"])}
            for row in [*kept, *train]
        ],
    )
