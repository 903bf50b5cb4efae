"""The doors of a Hub: the agents' socket, the one for TLS, and the private socket."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.hub import config
from amux.hub.errors import ConfigRefused, HomeRefused
from amux.hub.home import agent_socket, open_passable_folder
from amux.hub.server.listener import tls_context
from amux.hub.server.sockets import bind_tcp, bind_unix
from amux.hub.service import Door
from amux.hub.unixsocket import connect, is_listened_at

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Mapping

    from amux.hub.config import Settings

SHARED_SECONDS: Final = 2.0
UNIX_HOSTS: Final = frozenset({"localhost", "amux"})
_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104  # compared with, not bound


@dataclass(frozen=True, slots=True)
class Opened:
    """A bound socket with the application behind it; `made` is the file that it was bound to."""

    door: Door
    bound: socket.socket
    hosts: frozenset[str]
    path: Path | None = None
    made: os.stat_result | None = None
    home: str | None = None
    tls: ssl.SSLContext | None = None


def open_far_doors(
    doors: list[Opened], home: Path, environ: Mapping[str, str], settings: Settings
) -> None:
    """Open the agents' socket, and the one for TLS where it is configured."""
    path = agent_socket(home, environ, euid=os.geteuid())
    if path.parent != home:
        open_passable_folder(path.parent)
        _refuse_shared(path)
    bound = bind_unix(path, mode=0o666)
    doors.append(Opened(Door.AGENTS, bound, UNIX_HOSTS, path, path.lstat()))
    if settings.hub_listen:
        host, port = _listen(settings)
        tls = tls_context(settings.hub_tls_cert, settings.hub_tls_key)
        hosts = frozenset(name.lower() for name in (*settings.hub_names, host))
        bound = bind_tcp(host, port)
        doors.append(Opened(Door.TLS, bound, hosts - _ANY_ADDRESS, tls=tls))


def private_door(handed: socket.socket | None, path: Path, home: str) -> Opened:
    """Return the owner's door: a socket of our own at `path`, or the service manager's there."""
    if handed is not None:
        return Opened(Door.PRIVATE, handed, UNIX_HOSTS, home=home)
    bound = bind_unix(path, mode=0o600)
    return Opened(Door.PRIVATE, bound, UNIX_HOSTS, path, path.lstat(), home)


def refuse_managed(path: Path) -> None:
    """Refuse to take the place of a service manager that listens there."""
    if is_listened_at(path):
        raise HomeRefused(
            f"a service manager listens at {path} and starts the Hub at the first call; to serve "
            "by hand, stop its socket unit first: systemctl --user stop 'amux-hub-*.socket'"
        )


def close_doors(doors: list[Opened]) -> None:
    """Close what was opened; a socket that has taken another's place meanwhile stays."""
    for opened in doors:
        opened.bound.close()
        if opened.path is not None and opened.made is not None:
            with contextlib.suppress(OSError):
                if os.path.samestat(opened.made, opened.path.lstat()):
                    opened.path.unlink()


def listening(doors: list[Opened]) -> str:
    """Return the TLS socket's address as bound, also when the port was left to the kernel."""
    for opened in doors:
        if opened.door is Door.TLS:
            host, port = opened.bound.getsockname()[:2]
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return ""


def _refuse_shared(path: Path) -> None:
    """Refuse to take the place of a living Hub, which has the same AMUX_RUNS."""
    with contextlib.suppress(OSError):
        connect(path, seconds=SHARED_SECONDS).close()
        raise HomeRefused(
            f"the Hub of another home answers at {path}; "
            "set AMUX_RUNS to a folder of this home's own"
        )


def _listen(settings: Settings) -> tuple[str, int]:
    """Return host and port of `hub.listen`. Raises ConfigRefused."""
    host, port = config.parse_listen(settings.hub_listen)
    if not settings.hub_tls_cert or not settings.hub_tls_key:
        raise ConfigRefused(
            "hub.listen needs hub.tls_cert and hub.tls_key: plain HTTP is never served"
        )
    if host in _ANY_ADDRESS and not settings.hub_names:
        raise ConfigRefused("hub.listen names no host, so set hub.names to what clients call it")
    _check_key_file(Path(settings.hub_tls_key))
    return host, port


def _check_key_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ConfigRefused(f"cannot look at hub.tls_key {path}: {error.strerror}") from error
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise ConfigRefused(f"hub.tls_key {path} is open to others; run: chmod o-rwx,g-w {path}")
