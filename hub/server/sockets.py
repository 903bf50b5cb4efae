"""Sockets that we bind ourselves: uvicorn would make a Unix socket with mode 0666."""

from __future__ import annotations

import os
import secrets
import socket
from typing import TYPE_CHECKING, Final

from amux.hub.errors import HomeRefused
from amux.hub.unixsocket import LONGEST_PATH

if TYPE_CHECKING:
    from pathlib import Path

BACKLOG: Final = 4096


def bind_unix(path: Path, *, mode: int) -> socket.socket:
    """Return a listening socket at `path`, which appears only once it can be used.

    A path over 107 bytes is bound through a descriptor of its folder. An older socket of
    that name is replaced: the caller holds the root's lock. Raises HomeRefused.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    name = f".{path.name}.{secrets.token_hex(4)}"
    direct = str(path.with_name(name))
    short = len(os.fsencode(direct)) <= LONGEST_PATH
    try:
        mask = os.umask(0o777 & ~mode)
        try:
            bound.bind(direct if short else f"/proc/self/fd/{folder}/{name}")
        finally:
            os.umask(mask)
        os.chmod(name, mode, dir_fd=folder)
        bound.listen(BACKLOG)
        os.rename(name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        bound.close()
        raise HomeRefused(f"cannot make the socket {path}: {error.strerror}") from error
    finally:
        os.close(folder)
    bound.setblocking(False)  # noqa: FBT003  # the socket's own signature
    return bound


def bind_tcp(host: str, port: int) -> socket.socket:
    """Return a listening TCP socket. Raises HomeRefused."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as error:
        raise HomeRefused(f"cannot listen on {host}:{port}: {error.strerror}") from error
    bound.setblocking(False)  # noqa: FBT003  # the socket's own signature
    return bound
