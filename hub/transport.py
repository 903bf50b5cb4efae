"""Exchanges with a Hub: HTTP over a Unix socket, or over TLS by httpx."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from amux.hub.errors import HomeRefused, Unavailable
from amux.hub.secret import redact
from amux.hub.unixsocket import connect

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from pathlib import Path

CONNECT_SECONDS: Final = 2.0
MAX_ANSWER_BYTES: Final = 1024 * 1024
_HOST: Final = "localhost"


class UnixTransport:
    """Make a new connection for every exchange: on a Unix socket that costs microseconds.

    The request and the answer are written and read here, not by `http.client`: importing that
    takes longer than the rest of a launch's talk with the Hub.
    """

    def __init__(self, path: Path, *, seconds: float) -> None:
        self._path = path
        self._seconds = seconds

    def exchange(
        self, method: str, path: str, *, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        """Return status and body of the answer. Raises Unavailable."""
        try:
            request = _request(method, path, headers, body or b"")
            with connect(self._path, seconds=CONNECT_SECONDS) as channel:
                channel.settimeout(self._seconds)
                # A Hub that refuses early closes while a large body is still under way.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    channel.sendall(request)
                return _answer(_everything(channel))
        except (OSError, ValueError) as error:
            raise Unavailable(
                f"the Hub at {self._path} does not answer ({_reason(error)}); see: amux hub status"
            ) from error

    def close(self) -> None:
        """Hold nothing between exchanges."""


def _request(method: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {_HOST}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines.append(f"Content-Length: {len(body)}")
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header holds a line end")
    return "\r\n".join([*lines, "", ""]).encode() + body


def _everything(channel: socket.socket) -> bytes:
    """Read to the end of the connection, which the Hub closes after its answer.

    The end is a reset where the Hub has left some of a refused body unread.
    """
    pieces = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while piece := channel.recv(65536):
            pieces += piece
            if len(pieces) > MAX_ANSWER_BYTES:
                raise ValueError("its answer is too long")
    return bytes(pieces)


def _answer(data: bytes) -> tuple[int, bytes]:
    """Return status and body; raise ValueError for what is no whole answer."""
    head, end, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if not end or not words[0].startswith("HTTP/1.") or not words[1:2] or not words[1].isdecimal():
        raise ValueError("its answer is no HTTP")
    fields = {
        name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)
    }
    if fields.get("content-length") != str(len(body)):
        raise ValueError("its answer is not whole")
    return int(words[1]), body


class TlsTransport:
    """Keep connections to a remote Hub; its certificate is always verified."""

    def __init__(self, url: str, *, ca_pem: str | None, seconds: float) -> None:
        import ssl  # noqa: PLC0415  # a local Hub needs neither

        import httpx  # noqa: PLC0415  # a quarter of a second, for remote Hubs only

        try:
            context = ssl.create_default_context(cadata=ca_pem)
        except ssl.SSLError as error:
            raise HomeRefused("the CA certificate of this connection is not PEM") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._failure = httpx.HTTPError
        self._url = url
        self._client = httpx.Client(
            base_url=url,
            verify=context,
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(seconds, connect=CONNECT_SECONDS * 2),
        )

    def exchange(
        self, method: str, path: str, *, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        """Return status and body of the answer. Raises Unavailable."""
        try:
            response = self._client.request(method, path, content=body, headers=dict(headers))
        except self._failure as error:
            raise Unavailable(
                f"the Hub at {self._url} does not answer ({_reason(error)})"
            ) from error
        return response.status_code, response.content

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


def _reason(error: Exception) -> str:
    """Say why without quoting a request: headers hold the credential."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__ if not str(error) else redact(str(error))
