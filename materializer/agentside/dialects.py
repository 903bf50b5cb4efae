"""The published MCP versions, and what an answer looks like in each.

Up to 2025-11-25 a client agrees on a version once, with `initialize`. From 2026-07-28 each
request names its version in `params._meta`, and `server/discover` tells which there are; a
`server/discover` without that is no method that any version has.
"""

from __future__ import annotations

from amux.materializer.agentside import VERSION
from amux.materializer.agentside.frames import INVALID_PARAMS, RpcError

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = ("2026-07-28",)
BATCHED = ("2024-11-05", "2025-03-26")
UNSTRUCTURED = ("2024-11-05", "2025-03-26")
UNSUPPORTED_VERSION = -32022
META = "io.modelcontextprotocol/"
SERVER_INFO = {"name": "amux", "title": "amux memory", "version": VERSION}
CAPABILITIES = {"tools": {"listChanged": False}}
LIST_LIFETIME = 3_600_000  # milliseconds; the tools of a running server never change


def initialize(params: object) -> tuple[str, dict[str, object]]:
    """Agree on the version that was asked for, or offer the newest of its kind."""
    asked = params.get("protocolVersion") if isinstance(params, dict) else None
    version = asked if isinstance(asked, str) and asked in HANDSHAKE else HANDSHAKE[-1]
    return version, {
        "protocolVersion": version,
        "capabilities": CAPABILITIES,
        "serverInfo": SERVER_INFO,
    }


def modern_version(params: object) -> str | None:
    """Return the version that a request names for itself, or None; raise `RpcError`."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    if not isinstance(meta, dict) or META + "protocolVersion" not in meta:
        return None
    version = meta[META + "protocolVersion"]
    if not isinstance(version, str):
        raise RpcError(INVALID_PARAMS, f"{META}protocolVersion is a string.")
    if version not in MODERN:
        raise RpcError(
            UNSUPPORTED_VERSION,
            f"Unsupported protocol version: {version}",
            {"supported": [*HANDSHAKE, *MODERN], "requested": version},
        )
    if not isinstance(meta.get(META + "clientCapabilities"), dict):
        raise RpcError(INVALID_PARAMS, f"{META}clientCapabilities is missing.")
    return version


def discover() -> dict[str, object]:
    """Answer `server/discover`."""
    return {"supportedVersions": list(MODERN), "capabilities": CAPABILITIES}


def shaped(version: str, method: str, result: dict[str, object]) -> dict[str, object]:
    """Add to a result what its version demands."""
    if version not in MODERN:
        return result
    cached = method in ("server/discover", "tools/list")
    return {
        "resultType": "complete",
        **result,
        **({"ttlMs": LIST_LIFETIME, "cacheScope": "public"} if cached else {}),
        "_meta": {META + "serverInfo": SERVER_INFO},
    }
