"""Launch coding agents for many people with one shared, on-demand memory.

What is in `__all__` is the public interface; every other name may change with any release. The
names are imported when they are first used, since the `amux memory` command and each agent's shim
pass through this package and must start fast: nothing is imported here.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from amux.errors import AmuxError
    from amux.launcher.host import Host, this_host
    from amux.launcher.report import LaunchReport
    from amux.launcher.request import LaunchRequest, Provision
    from amux.launcher.supervisor import Event, EventKind, Session, Supervisor
    from amux.providers.base import Mode

_HOMES: Final = {
    "AmuxError": "amux.errors",
    "Event": "amux.launcher.supervisor",
    "EventKind": "amux.launcher.supervisor",
    "Host": "amux.launcher.host",
    "LaunchReport": "amux.launcher.report",
    "LaunchRequest": "amux.launcher.request",
    "Mode": "amux.providers.base",
    "Provision": "amux.launcher.request",
    "Session": "amux.launcher.supervisor",
    "Supervisor": "amux.launcher.supervisor",
    "this_host": "amux.launcher.host",
}

__all__ = [
    "AmuxError",
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
