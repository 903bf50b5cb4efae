"""The only orchestrator: request, plan, files, process, session record; and the amux command.

The public names are imported when they are first used, since the `amux memory` command passes
through this package and must start fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
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
    return getattr(importlib.import_module(_HOMES[name]), name)
