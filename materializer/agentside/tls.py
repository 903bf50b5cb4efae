"""A verified TLS connection to a Hub on TCP; imported only where one is needed."""

from __future__ import annotations

import socket
import ssl
import time

from amux.materializer.agentside.errors import Failure


def open_tls(place: str, ca_pem: str | None, timeout: float) -> tuple[socket.socket, str]:
    """Connect to `host[:port]` and verify it; return the socket and the value for Host."""
    if "/" in place or "@" in place:
        raise Failure("no_connection", "The connection file's URL has more than host and port.")
    host, port = _split(place)
    try:
        context = ssl.create_default_context(cadata=ca_pem)
    except (ssl.SSLError, ValueError) as error:
        raise Failure(
            "no_connection", "The connection file's certificate cannot be used."
        ) from error
    deadline = time.monotonic() + timeout
    plain = socket.create_connection((host, port), timeout)
    try:
        plain.settimeout(max(0.1, deadline - time.monotonic()))
        return context.wrap_socket(plain, server_hostname=host), place
    except BaseException:
        plain.close()
        raise


def _split(place: str) -> tuple[str, int]:
    if place.startswith("["):
        host, _, rest = place[1:].partition("]")
        port = rest[1:] if rest.startswith(":") else ""
    else:
        host, _, port = place.partition(":")
    if not host or (port and not port.isdigit()):
        raise Failure("no_connection", "The connection file's URL has no host, or a bad port.")
    return host, int(port or 443)
