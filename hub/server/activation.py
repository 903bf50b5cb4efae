"""The private socket as a service manager hands it over, in the manner of sd_listen_fds(3).

The manager listens at `hub.sock` before any Hub runs, and starts one at the first connection. The
socket stays the manager's: it is never unlinked here.
"""

from __future__ import annotations

import os
import socket
import stat
from typing import TYPE_CHECKING, Final

from amux.hub.errors import HomeRefused
from amux.hub.home import PRIVATE_FILE

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from pathlib import Path

FIRST: Final = 3
_NAMES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def take_handed(environ: MutableMapping[str, str]) -> socket.socket | None:
    """Return the socket that this very process was handed; take what says so out of `environ`.

    Raises HomeRefused for more than one, or for what is no socket.
    """
    said = {name: environ.pop(name, "") for name in _NAMES}
    if said["LISTEN_PID"] != str(os.getpid()):
        return None
    if said["LISTEN_FDS"] != "1":
        raise HomeRefused(
            f"a service manager handed over {said['LISTEN_FDS'] or 'no'} sockets; the Hub takes "
            "one, its hub.sock: see amux hub install-unit"
        )
    try:
        os.set_inheritable(FIRST, False)  # noqa: FBT003  # the function's own signature
        return socket.socket(fileno=FIRST)
    except OSError as error:
        raise HomeRefused(
            f"a service manager handed over what is no socket: {error.strerror}"
        ) from error


def check_handed(handed: socket.socket, path: Path) -> None:
    """Raise HomeRefused unless it is a Unix socket that listens at `path`; close it to others."""
    if handed.family != socket.AF_UNIX or handed.type != socket.SOCK_STREAM:
        raise HomeRefused("the socket that a service manager handed over is no Unix stream socket")
    if not handed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise HomeRefused("the socket that a service manager handed over does not listen")
    name = handed.getsockname()
    try:
        where, here = os.stat(name), path.lstat()  # noqa: PTH116  # a name of the kernel's
        there = os.path.samestat(where, here) and stat.S_ISSOCK(here.st_mode)
        if there and stat.S_IMODE(here.st_mode) != PRIVATE_FILE:
            path.chmod(PRIVATE_FILE)
    except (OSError, ValueError):
        there = False
    if not there:
        raise HomeRefused(
            f"the service manager listens at {os.fsdecode(name)!r}, which is not this home's "
            "hub.sock: restart its socket unit, or make it anew with amux hub install-unit"
        )
    handed.setblocking(False)  # noqa: FBT003  # the socket's own signature
