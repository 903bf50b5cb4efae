"""Reach the Hub for a launch, and start the local one where that is wanted and makes sense."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.hub.bindings import PRINCIPAL_PREFIX
from amux.hub.client import HubClient
from amux.hub.connection import connection_path, load_connection
from amux.hub.errors import HomeRefused, MemoryDisabled
from amux.hub.holder import read_holder
from amux.hub.unixsocket import connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.launcher.host import Host
    from amux.launcher.request import LaunchRequest

HUB_SECONDS: Final = 30.0
"""How long a launch waits for one answer of the Hub, which may have many to give."""
CONNECT_SECONDS: Final = 2.0
ENDS_WITH_US: Final = (
    "the Hub that this launch started lives in the launch's control group and cannot leave it: "
    "what ends the group (a unit, a CI job) ends the memory of every other session of this home "
    "too; start it elsewhere first with amux hub serve, or see amux hub install-unit"
)


def hub_client(host: Host) -> HubClient:
    """Return a client with the Runtime's credential, for a Hub that runs already."""
    path = connection_path(host.home, "runtime")
    if not path.exists():
        _refuse_without_runtime(host)
    return HubClient.from_file(path, seconds=HUB_SECONDS)


def _refuse_without_runtime(host: Host) -> None:
    """Raise HomeRefused for a home that knows a remote Hub, and not as a Runtime."""
    from amux.hub.enrolment import remote_connection  # noqa: PLC0415  # seldom needed

    remote = remote_connection(host.home)
    if remote is not None:
        raise HomeRefused(
            f"this home has no runtime credential of the Hub at {remote.url}, and a launch needs "
            "one; let the Hub's operator run amux credential issue --kind runtime --principal ID, "
            f"then here: amux hub connect {remote.url} --token-file FILE"
        )


def open_hub(request: LaunchRequest, host: Host, warn: Callable[[str], None]) -> HubClient:
    """Return a client of a Hub that answers; a local one is started on demand.

    `warn` hears where one that was started ends with this launch's control group. Raises
    MemoryDisabled where the configuration says off and no Hub runs, else HubError.
    """
    if not _answers(host):
        _start_hub(request, host, warn)
    return hub_client(host)


def _answers(host: Host) -> bool:
    """Say whether this home is enrolled, and its Hub is remote or accepts connections."""
    path = connection_path(host.home, "runtime")
    if not path.exists():
        return False
    socket_path = load_connection(path).socket_path
    if socket_path is None:
        return True
    with contextlib.suppress(OSError):
        connect(Path(socket_path), seconds=CONNECT_SECONDS).close()
        return read_holder(host.home, living=False) is not None
    return False


def _start_hub(request: LaunchRequest, host: Host, warn: Callable[[str], None]) -> None:
    # Imported here: a launch that finds the Hub running needs none of it, and starts sooner.
    from amux.hub import config  # noqa: PLC0415
    from amux.hub.enrolment import enrol_local, remote_connection  # noqa: PLC0415
    from amux.hub.local import ensure_running  # noqa: PLC0415
    from amux.hub.placement import Placed  # noqa: PLC0415

    enrol_local(host.home)
    if remote_connection(host.home) is not None:
        return
    if not config.load(host.home).memory_enabled:
        raise MemoryDisabled("memory.enabled is false")
    if request.start_hub:
        started = ensure_running(host.home, host.environ)
        shared = started.holder is not None and started.holder.placed == Placed.SHARED
        if started.fresh and shared:
            warn(ENDS_WITH_US)


def own_principal(host: Host) -> str | None:
    """Return the Principal of this account's own credential, None where the Hub knows none."""
    from amux.hub.enrolment import enrol_local, remote_connection  # noqa: PLC0415  # as above

    remote = remote_connection(host.home)
    if remote is None:
        return enrol_local(host.home)
    path = connection_path(host.home, "user")
    if not path.exists():
        return None
    with HubClient.from_file(path, seconds=HUB_SECONDS) as hub:
        binding = hub.capability().binding or ""
    return binding.removeprefix(PRINCIPAL_PREFIX) if binding.startswith(PRINCIPAL_PREFIX) else None
