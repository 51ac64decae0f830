"""Faults that are the user's to mend, not ours."""


class UserError(ValueError):
    """Bad input. The message names the value, the bound and the next action.

    Programs print the message on standard error and exit with status 2, without a traceback.
    """


class StoreAway(OSError):
    """A bus that cannot be reached, or takes nothing, after every retry: the same command may go
    well later. The message says what was tried.

    Programs print it on standard error and exit with status 75 (EX_TEMPFAIL), without a traceback.
    """
