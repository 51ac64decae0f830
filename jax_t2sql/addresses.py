"""Addresses of servers, as users give them."""

from urllib.parse import urlsplit

from jax_t2sql.errors import UserError


def server_address(url: str, *, option: str) -> str:
    """The address of an HTTP server without what comes after host and port.

    The path /v1, which belongs to other clients' addresses of the same server, may be there.

    Args:
      option: what the user gave, for the message.

    Raises:
      UserError: it is no http(s) address with a host and a possible port.

    >>> server_address("http://127.0.0.1:8000/v1/", option="--policy")
    'http://127.0.0.1:8000'
    """
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:  # a port that is no number, or over 65,535
        parts, port, host = urlsplit(""), 0, None
    path = parts.path.rstrip("/").removesuffix("/v1")
    rest = path or parts.query or parts.fragment or parts.username
    if parts.scheme not in ("http", "https") or not host or port == 0 or rest:
        raise UserError(f"{option} has the server {url!r}; give http://HOST:PORT")
    return f"{parts.scheme}://{parts.netloc}"
