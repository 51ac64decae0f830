"""Verdicts of before, for predictions that come again: in a group of rollouts many are the same."""

import threading
from collections import OrderedDict
from collections.abc import Hashable

from jax_t2sql.grading.requests import Grade
from jax_t2sql.grading.verdict import Verdict
from jax_t2sql.sql.varying import is_varying

# What the same texts on the same file would come to again. A timeout may be the machine's fault.
_REPEATABLE = ("equal", "different", "too_large", "error", "refused", "no_query", "gold_empty")


class VerdictMemo:
    """A bounded memory of verdicts, for use from any thread."""

    def __init__(self, *, max_chars: int = 32_000_000) -> None:
        """Keeps the most recently used verdicts, at most so many characters of SQL in all."""
        self._verdicts: OrderedDict[tuple, Verdict] = OrderedDict()
        self._chars = 0
        self._max_chars = max_chars
        self._lock = threading.Lock()

    def get(self, identity: Hashable, request: Grade) -> Verdict | None:
        """The verdict on a request, if it is known.

        Args:
          identity: what changes when the database file does (`database.file_identity`).
          request: the prediction and its gold.
        """
        key = identity, request
        with self._lock:
            verdict = self._verdicts.get(key)
            if verdict:
                self._verdicts.move_to_end(key)
            return verdict

    def put(self, identity: Hashable, request: Grade, verdict: Verdict) -> None:
        """Keeps a verdict, if it would be the same again."""
        if verdict.status not in _REPEATABLE:
            return
        if is_varying(request.pred_sql) or is_varying(request.gold_sql):
            return
        key = identity, request
        with self._lock:
            if key in self._verdicts:
                return
            self._verdicts[key] = verdict
            self._chars += _chars(request)
            while self._chars > self._max_chars:
                (_, oldest), _ = self._verdicts.popitem(last=False)
                self._chars -= _chars(oldest)


def _chars(request: Grade) -> int:
    return 500 + len(request.gold_sql) + len(request.pred_sql)  # with what surrounds them
