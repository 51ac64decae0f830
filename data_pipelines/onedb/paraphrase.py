"""Other words for a question, by a language model; and a reading check of the result.

The check grades six criteria on four levels. Three of them gate: a paraphrase that is not at least
"good" there is dropped and the rule's wording stays. Whether a reader thinks the question solvable
is recorded and never filters: hard questions are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from data_pipelines.onedb.endpoint import Endpoint, json_of
from data_pipelines.onedb.wording import REGISTERS

LEVELS = ("poor", "fair", "good", "excellent")
CRITERIA = {
    "faithful": "asks for exactly what the SQL computes, with every condition",
    "unambiguous": "has one reading",
    "output": "makes clear which columns are wanted, in which order, and how many rows",
    "values": "names values so that they can be found as they are stored",
    "natural": "is what a person would write",
    "register": "fits the register asked for",
}
GATING = ("faithful", "unambiguous", "output")
_STYLES = {
    "question": "a direct question",
    "command": "an instruction",
    "polite": "a polite request",
    "first_person": "what the writer wants to know, in the first person",
    "keywords": "a few words as typed into a search box, no whole sentence",
    "report": "a request from a colleague for a report",
}
_REWORD = (
    "You reword questions about a database. Keep the meaning exactly: every condition, every value"
    ' spelled as it is, the columns asked for, the order. Answer with JSON: {"question": "…"}.'
)
_READ = (
    "You check whether a question asks for exactly what an SQL query computes. Grade each criterion"
    f" with one of {', '.join(LEVELS)}: "
    + "; ".join(f"{name}: {meaning}" for name, meaning in CRITERIA.items())
    + ". Say also whether a skilled person could answer it from the schema alone. Answer with JSON:"
    ' {"faithful": "good", …, "solvable": true}.'
)


@dataclass(frozen=True)
class Reading:
    """A reader's grades; `solvable` is None where it did not say."""

    grades: dict[str, str]
    solvable: bool | None

    @property
    def passes(self) -> bool:
        """Every gating criterion is at least good."""
        return all(
            LEVELS.index(self.grades.get(name, "poor")) >= LEVELS.index("good") for name in GATING
        )


def read_question(endpoint: Endpoint, row: dict, text: str) -> Reading | None:
    """What a reader says of a wording; None where its answer cannot be read."""
    user = f"Register: {row.get('register', 'question')}\nQuestion: {text}\nSQL: {row['SQL']}"
    if row.get("evidence"):
        user += f"\nKnown besides: {row['evidence']}"
    found = json_of(endpoint.ask(_READ, user))
    if found is None:
        return None
    grades = {name: str(found.get(name, "")).lower() for name in CRITERIA}
    if any(grade not in LEVELS for grade in grades.values()):
        return None
    solvable = found.get("solvable")
    return Reading(grades, solvable if isinstance(solvable, bool) else None)


def paraphrase_rows(
    rows: Sequence[dict],
    endpoint: Endpoint,
    *,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> list[dict]:
    """Rows with the model's wording where it passes the reading check, in turn in six registers.

    A row keeps its rule's wording where the model's is unreadable, lacks a value or fails the
    check; a reworded row has the old wording in `wording_by_rule` and the grades in `reading`.

    Raises:
      UserError: the endpoint cannot be asked.
    """
    done = []
    for number, row in enumerate(rows):
        register = REGISTERS[number % len(REGISTERS)]
        user = f"Write it as {_STYLES[register]}.\nQuestion: {row['question']}\nSQL: {row['SQL']}"
        found = json_of(endpoint.ask(_REWORD, user, temperature=0.8, seed=seed + number))
        text = " ".join(str((found or {}).get("question", "")).split())
        new = {**row, "register": register}
        reading = read_question(endpoint, new, text) if keeps_values(row, text) else None
        if reading is not None:
            record = {"grades": reading.grades, "solvable": reading.solvable}
            if reading.passes:
                row = {**new, "question": text, "wording_by_rule": row["question"]}
            row = {**row, "reading": record}
        done.append(row)
        if (number + 1) % 50 == 0:
            say(f"{number + 1} of {len(rows)} rows read")
    return done


def keeps_values(row: dict, text: str) -> bool:
    """Whether a wording still names every text and number of the query that the old one names."""
    from sqlglot import exp, parse_one

    if not text or len(text) > 600:
        return False
    literals = {node.name for node in parse_one(row["SQL"], read="sqlite").find_all(exp.Literal)}
    told = [value.strip("%") for value in literals if value.strip("%") in row["question"]]
    return all(value in text for value in told if len(value) > 1)


def vote(rows: Sequence[dict], readers: Sequence[Endpoint], *, votes: int = 2) -> list[dict]:
    """Rows that at least so many readers object to, with what each of them graded below good."""
    found = []
    for row in rows:
        objections = []
        for reader in readers:
            reading = read_question(reader, row, row["question"])
            if reading is not None and not reading.passes:
                low = {n: g for n, g in reading.grades.items() if g in ("poor", "fair")}
                objections.append({"reader": reader.model, "grades": low})
        if len(objections) >= votes:
            found.append({**row, "objections": objections})
    return found
