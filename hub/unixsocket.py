"""Unix sockets under any path: over 107 bytes the kernel takes them only through a descriptor."""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_PATH: Final = 107


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


def _timeval(seconds: float) -> bytes:
    """Return a C `struct timeval`; zero would mean for ever."""
    microseconds = max(1, round(seconds * 1_000_000))
    return struct.pack("@ll", *divmod(microseconds, 1_000_000))
