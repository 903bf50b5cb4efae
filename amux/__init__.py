"""Launch coding agents for many people with one shared, on-demand memory.

What is in `__all__` is the public interface, and what `amux.providers.base`, `.errors` and
`.sighting` offer to providers; every other name may change with any release. The names are imported
when they are first used, since the `amux memory` command and each agent's shim pass through this
package and must start fast: nothing is imported here.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from amux.errors import AmuxError
    from amux.hub.client import Capability, Health, HubClient, LaunchGrant, Lease
    from amux.hub.connection import Connection
    from amux.hub.values import (
        ForgetRequest,
        Forgotten,
        Fragment,
        GetRequest,
        SearchAnswer,
        SearchRequest,
        UpsertRequest,
        Written,
    )
    from amux.launcher.channel.jsonlines import JsonLinesChannel
    from amux.launcher.channel.jsonrpc import (
        AnswerError,
        JsonRpcChannel,
        ServerRequest,
        ServerRequestHandler,
        ServerRequestRefused,
    )
    from amux.launcher.errors import ChannelError, DeadlinePassed
    from amux.launcher.process.pty import Terminal
    from amux.launcher.process.spawn import ExitStatus
    from amux.launcher.recovery import Reconciled
    from amux.launcher.report import LaunchReport
    from amux.launcher.request import LaunchRequest
    from amux.launcher.session.events import Event, EventKind, Watch
    from amux.launcher.session.store import Listing, SessionRecord
    from amux.launcher.supervisor import Session, Supervisor
    from amux.materializer.values import ProvidedFile
    from amux.providers.base import Mode, Sighting

_HOMES: Final = {
    "AmuxError": "amux.errors",
    "AnswerError": "amux.launcher.channel.jsonrpc",
    "Capability": "amux.hub.client",
    "ChannelError": "amux.launcher.errors",
    "Connection": "amux.hub.connection",
    "DeadlinePassed": "amux.launcher.errors",
    "Event": "amux.launcher.session.events",
    "EventKind": "amux.launcher.session.events",
    "ExitStatus": "amux.launcher.process.spawn",
    "ForgetRequest": "amux.hub.values",
    "Forgotten": "amux.hub.values",
    "Fragment": "amux.hub.values",
    "GetRequest": "amux.hub.values",
    "Health": "amux.hub.client",
    "HubClient": "amux.hub.client",
    "JsonLinesChannel": "amux.launcher.channel.jsonlines",
    "JsonRpcChannel": "amux.launcher.channel.jsonrpc",
    "LaunchGrant": "amux.hub.client",
    "LaunchReport": "amux.launcher.report",
    "LaunchRequest": "amux.launcher.request",
    "Lease": "amux.hub.client",
    "Listing": "amux.launcher.session.store",
    "Mode": "amux.providers.base",
    "ProvidedFile": "amux.materializer.values",
    "Reconciled": "amux.launcher.recovery",
    "SearchAnswer": "amux.hub.values",
    "SearchRequest": "amux.hub.values",
    "ServerRequest": "amux.launcher.channel.jsonrpc",
    "ServerRequestHandler": "amux.launcher.channel.jsonrpc",
    "ServerRequestRefused": "amux.launcher.channel.jsonrpc",
    "Session": "amux.launcher.supervisor",
    "SessionRecord": "amux.launcher.session.store",
    "Sighting": "amux.providers.base",
    "Supervisor": "amux.launcher.supervisor",
    "Terminal": "amux.launcher.process.pty",
    "UpsertRequest": "amux.hub.values",
    "Watch": "amux.launcher.session.events",
    "Written": "amux.hub.values",
}

__all__ = [
    "AmuxError",
    "AnswerError",
    "Capability",
    "ChannelError",
    "Connection",
    "DeadlinePassed",
    "Event",
    "EventKind",
    "ExitStatus",
    "ForgetRequest",
    "Forgotten",
    "Fragment",
    "GetRequest",
    "Health",
    "HubClient",
    "JsonLinesChannel",
    "JsonRpcChannel",
    "LaunchGrant",
    "LaunchReport",
    "LaunchRequest",
    "Lease",
    "Listing",
    "Mode",
    "ProvidedFile",
    "Reconciled",
    "SearchAnswer",
    "SearchRequest",
    "ServerRequest",
    "ServerRequestHandler",
    "ServerRequestRefused",
    "Session",
    "SessionRecord",
    "Sighting",
    "Supervisor",
    "Terminal",
    "UpsertRequest",
    "Watch",
    "Written",
]


def __getattr__(name: str) -> object:
    """Import a public name from its module."""
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    import importlib  # noqa: PLC0415  # see above

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names, of which none may be imported yet."""
    return __all__
