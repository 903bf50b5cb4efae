"""The socket of a run at which its launcher hears that the memory tools were asked for.

    <run>/agent-config/memory/witness.sock    0600, the target's

A datagram socket in a folder of the service: only the run's own account (and root) can send to it,
nobody can put another in its place, and the kernel names the sender's uid with each message.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from typing import TYPE_CHECKING, Final

from amux.materializer import descriptors

if TYPE_CHECKING:
    from amux.materializer.values import Identity, RunPaths

MODE: Final = 0o600
LONGEST_ADDRESS: Final = 107
MESSAGE_BYTES: Final = 8192
_CREDENTIALS: Final = struct.Struct("iII")


def listen(paths: RunPaths, identity: Identity | None) -> socket.socket | None:
    """Return the socket of a run that is in place; None where its folder can hold none."""
    try:
        folder = os.open(paths.config, descriptors.FOLDER)
    except OSError:
        return None
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with descriptors.closing(folder):
        try:
            heard.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            os.fchmod(heard.fileno(), MODE)  # before it has a name: Linux gives the name this mode
            heard.bind(_address(paths, folder))
            name = paths.witness.name
            os.chmod(name, MODE, dir_fd=folder)
            if identity is not None:
                os.chown(name, identity.uid, identity.gid, dir_fd=folder, follow_symlinks=False)
        except OSError:
            heard.close()
            return None
    return heard


def receive(heard: socket.socket) -> tuple[int, bytes] | None:
    """Wait for a message; return its sender's uid and its bytes, None once the socket is shut."""
    data, ancillary, flags, _ = heard.recvmsg(MESSAGE_BYTES, socket.CMSG_SPACE(1024))
    uid = -1
    for level, kind, content in ancillary:
        if level != socket.SOL_SOCKET:
            continue
        if kind == socket.SCM_CREDENTIALS and len(content) >= _CREDENTIALS.size:
            _, uid, _ = _CREDENTIALS.unpack(content[: _CREDENTIALS.size])
        elif kind == socket.SCM_RIGHTS:
            _close(content)
    if uid < 0:
        return None
    return uid, b"" if flags & socket.MSG_TRUNC else data


def _close(content: bytes) -> None:
    """Close descriptors that somebody sent along."""
    sent = array.array("i")
    sent.frombytes(content[: len(content) - len(content) % sent.itemsize])
    for fd in sent:
        os.close(fd)


def _address(paths: RunPaths, folder: int) -> str:
    if len(os.fsencode(paths.witness)) <= LONGEST_ADDRESS:
        return str(paths.witness)
    return f"/proc/self/fd/{folder}/{paths.witness.name}"
