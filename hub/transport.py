"""Exchanges with a Hub: HTTP over a Unix socket by the standard library, over TLS by httpx."""

from __future__ import annotations

import contextlib
import http.client
from typing import TYPE_CHECKING, Final

from hub.errors import HomeRefused, Unavailable
from hub.unixsocket import connect

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CONNECT_SECONDS: Final = 2.0
_HOST: Final = "localhost"


class UnixTransport:
    """Make a new connection for every exchange: on a Unix socket that costs microseconds."""

    def __init__(self, path: Path, *, seconds: float) -> None:
        self._path = path
        self._seconds = seconds

    def exchange(
        self, method: str, path: str, *, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        """Return status and body of the answer. Raises Unavailable."""
        channel = _UnixConnection(self._path, seconds=self._seconds)
        try:
            # A Hub that refuses early closes while a large body is still under way.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                channel.request(method, path, body=body, headers={**headers, "Connection": "close"})
            response = channel.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(
                f"the Hub at {self._path} does not answer ({_reason(error)}); see: amux hub status"
            ) from error
        finally:
            channel.close()

    def close(self) -> None:
        """Hold nothing between exchanges."""


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


class _UnixConnection(http.client.HTTPConnection):
    """An HTTP connection whose socket is a Unix one."""

    def __init__(self, path: Path, *, seconds: float) -> None:
        super().__init__(_HOST, timeout=seconds)
        self._path = path
        self._seconds = seconds

    def connect(self) -> None:
        """Connect to the socket at the path."""
        self.sock = connect(self._path, seconds=CONNECT_SECONDS)
        self.sock.settimeout(self._seconds)


def _reason(error: Exception) -> str:
    """Say why without quoting a request: headers hold the credential."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, http.client.HTTPException):
        return type(error).__name__
    return type(error).__name__ if not str(error) else str(error)
