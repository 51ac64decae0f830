"""A small asynchronous HTTP/1.1 client: JSON out and in, connections kept open and used again.

Enough for one server that is ours. Hundreds of requests may be under way at once; more than
`max_connections` wait for their turn here instead of in the server's backlog.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from jax_t2sql.errors import UserError

_MAX_HEAD_BYTES = 1 << 16
_MAX_BODY_BYTES = 1 << 28


class Unreachable(Exception):
    """No proper answer came: refused, cut off, timed out, or not HTTP. Asking again may help."""


class CutOff(Unreachable):
    """The request was sent, and no proper answer came: it may itself be what the server died of."""


class HttpClient:
    """Asks one server.

    Args:
      headers: sent with every request.

    Raises:
      UserError: the URL is none, or a header would break the request.
    """

    def __init__(
        self,
        url: str,
        *,
        max_connections: int = 512,
        timeout: float = 600.0,
        headers: Mapping[str, str] = {},  # noqa: B006  (only read)
    ):
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise UserError(
                f"{url!r} is not the address of a server; give http://HOST:PORT, "
                "such as http://127.0.0.1:8000"
            )
        self.url = f"{parts.scheme}://{parts.netloc}"
        self.timeout = timeout
        self._secure = ssl.create_default_context() if parts.scheme == "https" else None
        self._host, self._port = parts.hostname, port or (443 if self._secure else 80)
        self._base = parts.path.rstrip("/")
        if not all(value.isprintable() and value.isascii() for value in headers.values()):
            names = ", ".join(headers)
            raise UserError(f"a value of the headers {names} has characters that none may have")
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._turn = asyncio.Semaphore(max_connections)

    async def ask(
        self, method: str, path: str, value: Any = None, *, timeout: float | None = None
    ) -> tuple[int, bytes]:
        """Status and body of the answer: see `ask_all`."""
        status, _, body = await self.ask_all(method, path, value, timeout=timeout)
        return status, body

    async def ask_all(
        self, method: str, path: str, value: Any = None, *, timeout: float | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers (names in lower case) and body of the answer.

        value: sent as JSON unless None. timeout: seconds, from when the request's turn has come.

        Raises:
            Unreachable: there was no answer; CutOff if the request was sent.
        """
        body = b"" if value is None else json.dumps(value).encode()
        head = (
            f"{method} {self._base}{path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"{self._headers}\r\n"
        )
        async with self._turn:
            try:
                async with asyncio.timeout(timeout or self.timeout):
                    return await self._exchange(head.encode() + body)
            except TimeoutError as error:
                limit = timeout or self.timeout
                raise CutOff(f"{self.url}{path}: no answer in {limit:g} s") from error
            except CutOff as error:
                raise CutOff(f"{self.url}{path}: {error}") from error
            except OSError as error:
                raise Unreachable(f"{self.url}{path}: {_what(error)}") from error

    async def _exchange(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        while self._idle:
            # The server may have closed an idle connection just now; then a new one is tried.
            with contextlib.suppress(OSError, EOFError, ValueError, asyncio.LimitOverrunError):
                return await self._exchange_on(self._idle.pop(), request)
        connection = await asyncio.open_connection(
            self._host, self._port, ssl=self._secure, limit=_MAX_HEAD_BYTES
        )
        try:
            return await self._exchange_on(connection, request)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            raise CutOff(_what(error)) from error

    async def _exchange_on(self, connection, request: bytes) -> tuple[int, dict[str, str], bytes]:
        reader, writer = connection
        kept = False
        try:
            writer.write(request)
            await writer.drain()
            status, headers = _read_head(await reader.readuntil(b"\r\n\r\n"))
            body = await _read_body(reader, headers)
            kept = headers.get("connection", "").lower() != "close" and "until-close" not in headers
            return status, headers, body
        finally:  # a request that was cancelled leaves its answer behind: not to be used again
            if kept:
                self._idle.append(connection)
            else:
                writer.close()

    async def close(self) -> None:
        """Closes what is idle."""
        while self._idle:
            _, writer = self._idle.pop()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def _what(error: Exception) -> str:
    return str(error) or type(error).__name__


def _read_head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    fields = first.split(" ", 2)
    if len(fields) < 2 or not fields[0].startswith("HTTP/1."):
        raise ValueError(f"not an HTTP answer: {first[:80]!r}")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    return int(fields[1]), headers


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _read_chunks(reader)
    if "content-length" in headers:
        size = _bounded(int(headers["content-length"]))
        return await reader.readexactly(size)
    headers["until-close"] = "yes"
    return await reader.read(_MAX_BODY_BYTES)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    chunks, total = [], 0
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        total = _bounded(total + size)
        chunk = await reader.readexactly(size + 2)
        if size == 0:
            return b"".join(chunks)
        chunks.append(chunk[:-2])


def _bounded(size: int) -> int:
    if not 0 <= size <= _MAX_BODY_BYTES:
        raise ValueError(f"an answer of {size} bytes; at most {_MAX_BODY_BYTES} are read")
    return size


def describe(status: int, body: bytes, *, limit: int = 300) -> str:
    """An answer that reports a fault, in one line."""
    text = body.decode("utf-8", "replace")
    pick: Callable[[Any], Any] = lambda v: v.get("message") if isinstance(v, dict) else None  # noqa: E731
    with contextlib.suppress(ValueError):
        value = json.loads(text)
        text = pick(value) or pick(value.get("error") if isinstance(value, dict) else None) or text
    return f"HTTP {status}: {' '.join(str(text).split())[:limit]}"
