"""What a sampler process tells its user: each new trouble once, and why it does nothing."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Voice:
    """Speaks in lines. last_error: the latest trouble, which heartbeats carry to the learner.

    Attributes:
      say: shows the user one line.
      say_every: seconds between two lines with the same reason to wait.
    """

    say: Callable[[str], None] = print
    say_every: float = 30.0
    last_error: str = ""
    _reason: str | None = None
    _since: float = 0.0
    _said: float | None = None
    _away_since: float | None = None
    _away_said: float = 0.0

    def trouble(self, line: str) -> None:
        """Something went wrong; said unless it is what was said last."""
        if line != self.last_error:
            self.say(line)
        self.last_error = line

    def server(self, line: str) -> None:
        """What the client has to say of the server; "" when it answers again.

        Requests fail side by side, each in its own words: one of them is said now and then.
        """
        now = time.monotonic()
        if line:
            self.last_error = f"the server: {line}"
            new = self._away_since is None
            if new:
                self._away_since = now
            if new or now - self._away_said >= self.say_every:
                self._away_said = now
                self.say(self.last_error + ("" if new else f" ({now - self._away_since:.0f} s)"))
        else:
            away = 0.0 if self._away_since is None else now - self._away_since
            self.say(f"the server answers again (after {away:.0f} s)")
            self.last_error, self._away_since = "", None

    def waits(self, reason: str | None, *, after: float = 0.0) -> None:
        """Why nothing is done, said when it has lasted for `after` seconds, then every `say_every`.

        None: something is done.
        """
        now = time.monotonic()
        if reason != self._reason:
            self._reason, self._since, self._said = reason, now, None
        if reason is None or now - self._since < after:
            return
        if self._said is None or now - self._said >= self.say_every:
            self._said = now
            self.say(f"waiting: {reason}")
