"""The files of an evaluation, one typed JSON line a row, that an interrupted run goes on with.

    OUT/questions.jsonl   `QuestionRow`: what was asked, with one gold query an answer key
    OUT/answers.jsonl     `AnswerRow`: what a policy answered; only ever appended to
    OUT/verdicts.jsonl    `VerdictRow`: what a grader said of an answer under a key; the same

A row names an answer by its question, candidate and whether evidence was shown. A process that is
killed leaves at most one torn line, the last: readers pass over it and the next writer cuts it off.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import msgspec

from jax_t2sql.errors import UserError

Ending = Literal[
    "answer", "no_query", "cut_off", "contract_broken", "prompt_too_long", "missing", "error"
]
AnswerId = tuple[str, int, bool]


class Gold(msgspec.Struct, frozen=True, kw_only=True):
    """A question's gold query in one answer key, and how results are compared with its own."""

    sql: str
    grading: str = "set"


class QuestionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One question.

    Attributes:
      golds: by the answer key's name, in the order of the keys; a key may lack the question.
    """

    question_id: str
    db_id: str
    question: str
    golds: dict[str, Gold]
    evidence: str = ""
    difficulty: str | None = None


class Message(msgspec.Struct, frozen=True):
    """One message of an episode; role is system, user, assistant or tool."""

    role: str
    content: str


class AnswerRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer.

    Attributes:
      candidate: 0 is the greedy answer (or the only one there is), 1 to N are samples.
      evidence: whether the question's external knowledge was shown.
      sql: the answer's query; None where there is none.
      ending: how it came to an end. "answer": there is a query. Else there is none: "no_query" (a
        policy without one for this question, or a blank one), "cut_off" (token limit),
        "contract_broken", "prompt_too_long", "missing" (no database), "error" (the policy failed).
      prompt_tokens: read by the model in all turns; cached_tokens of them from a cache.
      completion_tokens: written by the model in all turns.
      turns: messages of the model.
      seconds: from the first request to the last reply.
      error: one sentence, where something failed.
      messages: the episode as it went, where the policy plays one.
    """

    question_id: str
    candidate: int
    decoding: Literal["greedy", "sample"]
    ending: Ending
    sql: str | None = None
    evidence: bool = True
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    turns: int | None = None
    seconds: float | None = None
    error: str = ""
    messages: tuple[Message, ...] = ()

    @property
    def id(self) -> AnswerId:
        """What names the answer among those of a run."""
        return self.question_id, self.candidate, self.evidence


class VerdictRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one grader said of one answer under one answer key.

    Attributes:
      key: name of the answer key.
      grader: "set", "multiset", "list", "question" (each question's own mode), "bird", …
      kind: the grader's word: "match", "mismatch", "error", "timeout", …
      correct: None where it cannot be told (gold_error, infrastructure): such rows are not counted.
      value: for graders that give more than right or wrong (R-VES, soft F1).
      detail: one sentence for a person.
    """

    question_id: str
    candidate: int
    key: str
    grader: str
    kind: str
    correct: bool | None
    evidence: bool = True
    value: float | None = None
    detail: str = ""

    @property
    def answer_id(self) -> AnswerId:
        """`AnswerRow.id` of the answer."""
        return self.question_id, self.candidate, self.evidence


Row = TypeVar("Row", bound=msgspec.Struct)


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """All rows of a file; [] where there is none. A torn last line is passed over.

    Raises:
      UserError: a line that is no such row, with its number; or the file cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from None
    decoder = msgspec.json.Decoder(kind)
    rows = []
    for number, line in enumerate(data[: _whole(data)].split(b"\n")[:-1], start=1):
        try:
            rows.append(decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UserError(
                f"{path}:{number}: {error}; the line is damaged, or of another version of"
                " jax_t2sql. Remove it to have that made again, or name another folder"
            ) from None
    return rows


class RowWriter:
    """Appends rows to a file; what `write` returned from survives the machine's end.

    A context manager. A torn last line that an earlier process left is cut off first. Halves of
    surrogate pairs (database text that is no UTF-8) are written as their escapes, in plain letters:
    no reader takes them.
    """

    def __init__(self, path: Path) -> None:
        self._file = open(path, "a+b")  # noqa: SIM115
        self._file.seek(0)
        self._file.truncate(_whole(self._file.read()))
        self._encode = msgspec.json.Encoder().encode

    def write(self, rows: Iterable[msgspec.Struct]) -> None:
        """Appends rows, all on disk when it returns."""
        data = b"".join(self._line(row) for row in rows)
        if data:
            self._file.write(data)
            self._file.flush()
            os.fsync(self._file.fileno())

    def _line(self, row: msgspec.Struct) -> bytes:
        try:
            return self._encode(row) + b"\n"
        except UnicodeEncodeError:
            return self._encode(_spelled(msgspec.to_builtins(row))) + b"\n"

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def write_rows(path: Path, rows: Iterable[msgspec.Struct]) -> None:
    """A file of these rows, there whole or not at all."""
    draft = path.with_name(path.name + ".tmp")
    draft.write_bytes(b"")
    with RowWriter(draft) as writer:
        writer.write(rows)
    draft.replace(path)


def _spelled(value: Any) -> Any:
    """The value with halves of surrogate pairs as their escapes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_spelled(name): _spelled(item) for name, item in value.items()}
    return [_spelled(item) for item in value] if isinstance(value, list | tuple) else value


def _whole(data: bytes) -> int:
    """Where the last whole line ends."""
    return data.rfind(b"\n") + 1
