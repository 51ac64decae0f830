"""Why a proof is not attempted."""


class Unsupported(Exception):
    """A construct that is not modelled exactly; the message names it."""
