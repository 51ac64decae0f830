"""Verdicts on a stream of pairs, in the order of the pairs however they finish."""

import hashlib
import queue
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from jax_t2sql.errors import UserError
from jax_t2sql.grading import GradingPool, Verdict
from jax_t2sql.pairs import Pair
from jax_t2sql.sql import Mode

# Asked of the pool at a time, for each worker: enough that no worker ever waits for the next pair.
_AHEAD = 64
# Finished pairs kept while an earlier one runs: what the other workers do during one time limit.
_MAX_KEPT = 100_000
# A prediction that never fails: its verdict tells whether the gold result is empty.
_NOTHING = "SELECT 1 WHERE 0"
_SAYS_NOTHING_OF_THE_PREDICTION = ("gold_error", "infrastructure")
_SPEAKS_OF_THE_GOLD = ("equal", "different", "gold_empty", *_SAYS_NOTHING_OF_THE_PREDICTION)


@dataclass(frozen=True, slots=True)
class Graded:
    """What became of a pair.

    Attributes:
      id, db_id: the pair's.
      verdict: "match" or "mismatch" where both queries ran; what became of the prediction otherwise
        ("error", "timeout", "too_large", "refused", "no_query", "crashed"); "gold_error" or
        "infrastructure" where that cannot be told.
      detail: one sentence for a person.
      gold_empty: the gold result has no rows, or nothing but NULL in them.
      seconds: wall time of the predicted query.
    """

    id: str | int
    db_id: str
    verdict: str
    detail: str
    gold_empty: bool
    seconds: float

    @property
    def is_graded(self) -> bool:
        """Whether the verdict says anything of the prediction."""
        return self.verdict not in _SAYS_NOTHING_OF_THE_PREDICTION

    def record(self) -> dict:
        """The pair's line in a file of verdicts."""
        flag = {"gold_empty": True} if self.gold_empty else {}
        return {
            "id": self.id,
            "db_id": self.db_id,
            "verdict": self.verdict,
            "detail": self.detail,
            **flag,
            "seconds": round(self.seconds, 6),
        }


def grade_pairs(
    pairs: Iterable[Pair],
    *,
    find: Callable[[str], Path | UserError],
    pool: GradingPool,
    workers: int,
) -> Iterator[list[Graded]]:
    """Grades pairs; yields what is next in order as soon as it is there, in bursts.

    Takes pairs only as fast as they are graded, so that memory stays bounded however many they are:
    a fixed number of them is in the pool's hands, and finished ones are kept without their queries
    while an earlier pair still runs.

    Args:
      find: gives the file of a `db_id`, or says why there is none.
      workers: of the pool.
    """
    run = _Run(find, pool)
    for pair in pairs:
        run.start(pair)
        while run.running >= _AHEAD * workers or run.kept >= _MAX_KEPT or run.has_answer():
            run.settle()
            yield from run.burst()
        yield from run.burst()
    while run.running:
        run.settle()
        yield from run.burst()


class _Run:
    """The pairs between their start and their place in the output."""

    def __init__(self, find: Callable[[str], Path | UserError], pool: GradingPool) -> None:
        self._find = find
        self._pool = pool
        self._answers: queue.SimpleQueue[tuple[int, Pair, Verdict | None, Future]] = (
            queue.SimpleQueue()
        )
        self._in_flight: dict[bytes, Future[Verdict]] = {}
        self._finished: dict[int, Graded] = {}
        self._started = self._yielded = 0
        self.running = 0

    @property
    def kept(self) -> int:
        return len(self._finished)

    def has_answer(self) -> bool:
        return not self._answers.empty()

    def start(self, pair: Pair) -> None:
        """Hands the next pair to the pool."""
        index = self._started
        self._started += 1
        path = self._find(pair.db_id)
        if isinstance(path, UserError):
            self._finish(index, pair, Verdict("infrastructure", str(path)))
        else:
            self._ask(index, pair, pair.pred, pair.mode)

    def settle(self) -> None:
        """Waits for one answer of the pool."""
        index, pair, verdict, future = self._answers.get()
        self.running -= 1
        answer = _answer(future)
        if verdict is not None:  # the answer is on `_NOTHING`
            self._finish(index, pair, verdict, gold_empty=answer.status == "gold_empty")
        elif answer.status in _SPEAKS_OF_THE_GOLD:
            self._finish(index, pair, answer, gold_empty=answer.status == "gold_empty")
        else:
            self._ask(index, pair, _NOTHING, Mode("set"), verdict=answer)

    def burst(self) -> Iterator[list[Graded]]:
        """Yields the finished pairs whose turn it is, if there are any."""
        found = []
        while self._yielded in self._finished:
            found.append(self._finished.pop(self._yielded))
            self._yielded += 1
        if found:
            yield found

    def _ask(
        self, index: int, pair: Pair, pred: str, mode: Mode, verdict: Verdict | None = None
    ) -> None:
        future = self._grade(self._find(pair.db_id), pair.gold, pred, mode)
        self.running += 1
        future.add_done_callback(lambda done: self._answers.put((index, pair, verdict, done)))

    def _grade(self, path: Path, gold: str, pred: str, mode: Mode) -> Future[Verdict]:
        """The pool's verdict, or the one that it is just finding on a pair that is alike.

        (The pool itself remembers verdicts that it has found.)
        """
        # A digest, as the queries themselves may be of any size.
        key = hashlib.sha256(repr((path, gold, pred, mode)).encode()).digest()
        future = self._in_flight.get(key)
        if future is None:
            future = self._in_flight[key] = self._pool.grade(path, gold, pred, mode)
            future.add_done_callback(lambda _: self._in_flight.pop(key, None))
        return future

    def _finish(self, index: int, pair: Pair, verdict: Verdict, *, gold_empty: bool = False):
        names = {"equal": "match", "different": "mismatch"}
        # With an empty gold a benchmark still counts the answer that is empty too.
        names["gold_empty"] = "match" if verdict.matches else "mismatch"
        name = names.get(verdict.status, verdict.status)
        self._finished[index] = Graded(
            pair.id, pair.db_id, name, verdict.detail, gold_empty, verdict.seconds
        )


def _answer(future: Future[Verdict]) -> Verdict:
    try:
        return future.result()
    except OSError as error:  # no worker starts; the pairs after this one may find one again
        return Verdict("infrastructure", str(error))
