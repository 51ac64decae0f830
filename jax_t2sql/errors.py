"""The one exception for faults that a user can mend."""


class UserError(ValueError):
    """Bad input. The message names the value, the bound and the next action.

    Programs print the message on standard error and exit with status 2, without a traceback.
    """
