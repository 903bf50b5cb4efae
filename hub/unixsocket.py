"""Unix sockets under any path: over 107 bytes the kernel takes them only through a descriptor."""

from __future__ import annotations

import os
import socket
import stat
import struct
from pathlib import Path
from typing import Final

LONGEST_PATH: Final = 107
_WITH_PATH: Final = 8
_ACCEPTS: Final = 0x10000


def connect(path: Path, *, seconds: float) -> socket.socket:
    """Return a connected Unix socket; a path over 107 bytes goes through its folder's descriptor.

    Raises OSError.
    """
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # A full backlog refuses a socket with a timeout of Python's at once; this one waits.
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(seconds))
    try:
        if len(os.fsencode(path)) <= LONGEST_PATH:
            channel.connect(str(path))
            channel.settimeout(seconds)
            return channel
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            channel.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        channel.settimeout(seconds)
    except OSError:
        channel.close()
        raise
    return channel


def is_listened_at(path: Path) -> bool:
    """Say whether a socket that was bound to this very path listens; without connecting to it.

    A Hub binds its own under another name first. Sockets of other network namespaces, and what a
    system without this table has, do not show.
    """
    try:
        table = Path("/proc/net/unix").read_bytes()
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return False
    except OSError:
        return False
    for line in table.splitlines():
        # Address, references, protocol, flags, type, state, inode, path.
        fields = line.split(None, 7)
        if len(fields) == _WITH_PATH and fields[7] == os.fsencode(path):
            try:
                if int(fields[3], 16) & _ACCEPTS:
                    return True
            except ValueError:
                continue
    return False


def _timeval(seconds: float) -> bytes:
    """Return a C `struct timeval`; zero would mean for ever."""
    microseconds = max(1, round(seconds * 1_000_000))
    return struct.pack("@ll", *divmod(microseconds, 1_000_000))
