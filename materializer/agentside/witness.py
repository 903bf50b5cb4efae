"""Tell this run's launcher that its agent asked the memory tools' server, and what it was offered.

One datagram to the socket that the launch's own connection file names. Nothing waits for it and
nothing depends on it: without such a socket, or with nobody at it, the server serves all the same.
"""

from __future__ import annotations

import socket

from amux.materializer.agentside.connection import find_witness
from amux.materializer.agentside.dialects import META
from amux.materializer.agentside.streams import to_json
from amux.materializer.agentside.transport import UnixAddress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    Answer = dict[str, object]

NAME = 100  # characters that are told of a name


def tell(
    environ: Mapping[str, str], client: object, method: str, params: object, result: Answer
) -> None:
    """Tell of one answered request, to whoever listens; nobody may."""
    place = find_witness(environ)
    if place is None:
        return
    fields: dict[str, object] = {"schema": 1, "event": method, "client": _client(client, params)}
    if method == "tools/list":
        tools = result.get("tools")
        fields["tools"] = [tool["name"] for tool in tools] if isinstance(tools, list) else []
    elif method == "tools/call" and isinstance(params, dict):
        fields["tools"] = [_name(params.get("name"))]
    try:
        _send(place, to_json(fields))
    except (OSError, ValueError):
        pass  # a launcher that is gone, or that made no socket


def _send(path: str, message: bytes) -> None:
    with UnixAddress(path) as address, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.sendto(message, socket.MSG_DONTWAIT, address)


def _client(found: object, params: object) -> dict[str, str]:
    """Return the client's name and version, from its handshake or stamped on the request."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    if not isinstance(found, dict) and isinstance(meta, dict):
        found = meta.get(META + "clientInfo")
    if not isinstance(found, dict):
        return {}
    return {key: _name(found.get(key)) for key in ("name", "version")}


def _name(value: object) -> str:
    return value[:NAME] if isinstance(value, str) else ""
