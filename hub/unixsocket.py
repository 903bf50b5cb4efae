"""Unix sockets under any path: over 107 bytes the kernel takes them only through a descriptor."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_PATH: Final = 107


def connect(path: Path, *, seconds: float) -> socket.socket:
    """Return a connected Unix socket; a path over 107 bytes goes through its folder's descriptor.

    Raises OSError.
    """
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    channel.settimeout(seconds)
    try:
        if len(os.fsencode(path)) <= LONGEST_PATH:
            channel.connect(str(path))
            return channel
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            channel.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
    except OSError:
        channel.close()
        raise
    return channel
