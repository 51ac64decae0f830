"""What can go wrong on the bus, one exception a kind of answer."""

from jax_t2sql.errors import UserError


class LogError(UserError):
    """The log is damaged, or an entry contradicts those before it. Nothing may be appended."""


class NoRun(UserError):
    """There is no bus, or no run on it, yet."""


class ContractError(UserError):
    """The log was started with another contract; the message names the parts that differ."""


class RunEnded(UserError):
    """The log already holds its `end` entry."""


class LostLeadership(RuntimeError):
    """Another learner has appended to the log: this one must exit without writing anything more.

    Not a user error: the run goes on under the other learner.
    """


class BadObject(ValueError):
    """Evidence that cannot be used. `fate` is "corrupt" (bytes damaged) or "invalid" (a rule)."""

    def __init__(self, fate: str, message: str, *, sampler: str | None = None):
        super().__init__(message)
        self.fate = fate
        self.sampler = sampler
