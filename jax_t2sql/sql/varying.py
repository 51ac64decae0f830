"""Does a query's answer change by itself? Then it must not be kept for later."""

import re

# The clock, also where a date function is called without a moment, and chance.
_VARYING = re.compile(
    r"random|now|current_"
    r"|(?:date|time|julianday|unixepoch)\s*\(\s*\)"
    r"|strftime\s*\(\s*(?:'[^']*'|\"[^\"]*\")\s*\)",
    re.IGNORECASE,
)


def is_varying(sql: str) -> bool:
    """Whether a query may give something else tomorrow on the same database.

    True for some that do not (`now` may be part of a name): they only run again.

    >>> is_varying("SELECT strftime('%Y', CURRENT_TIMESTAMP) - strftime('%Y', born) FROM person")
    True
    >>> is_varying("SELECT strftime('%Y', born) FROM person")
    False
    """
    return bool(_VARYING.search(sql))
