"""The one answer of a comparison that is neither yes nor no."""

from jax_t2sql.errors import UserError


class Undecided(UserError):
    """Two results that only a search without bounds could tell to be equal or not.

    Raised instead of a guess. It takes many columns of few values that no count tells apart, or
    many REALs a tolerance away from each other: no answer to a question looks like that.
    """
