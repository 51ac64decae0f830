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
    _reason: str = ""
    _since: float = 0.0

    def trouble(self, line: str) -> None:
        """Something went wrong; said unless it is what was said last."""
        if line != self.last_error:
            self.say(line)
        self.last_error = line

    def server(self, line: str) -> None:
        """What the client has to say of the server; "" when it answers again."""
        if line:
            self.trouble(f"the server: {line}")
        else:
            self.say("the server answers again")
            self.last_error = ""

    def waits(self, reason: str | None) -> None:
        """Why nothing is done, said when it is new and then every `say_every` seconds."""
        now = time.monotonic()
        if reason is None:
            self._reason = ""
        elif reason != self._reason or now - self._since >= self.say_every:
            self._reason, self._since = reason, now
            self.say(f"waiting: {reason}")
