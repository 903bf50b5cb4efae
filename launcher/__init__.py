"""The only orchestrator: request, plan, files, process, session record; and the amux command.

The public names are imported when they are first used, since the `amux memory` command and each
agent's shim pass through this package and must start fast: nothing is imported here.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from launcher.host import Host, this_host
    from launcher.report import LaunchReport
    from launcher.request import LaunchRequest, Provision
    from launcher.supervisor import Event, EventKind, Session, Supervisor
    from providers.base import Mode

_HOMES: Final = {
    "Event": "launcher.supervisor",
    "EventKind": "launcher.supervisor",
    "Host": "launcher.host",
    "LaunchReport": "launcher.report",
    "LaunchRequest": "launcher.request",
    "Mode": "providers.base",
    "Provision": "launcher.request",
    "Session": "launcher.supervisor",
    "Supervisor": "launcher.supervisor",
    "this_host": "launcher.host",
}

__all__ = [
    "Event",
    "EventKind",
    "Host",
    "LaunchReport",
    "LaunchRequest",
    "Mode",
    "Provision",
    "Session",
    "Supervisor",
    "this_host",
]


def __getattr__(name: str) -> object:
    """Import a public name from its module."""
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    import importlib  # noqa: PLC0415  # see above

    return getattr(importlib.import_module(_HOMES[name]), name)
