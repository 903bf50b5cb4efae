"""Read the files that a provider asked about, with the rights of the account they belong to.

A service that reads as root what a target named could be led to its own secrets by a link, and
they would end in the target's own arguments. So the reading is done by a thread that has taken
the target's file-system identity; a thread's is its own, and it ends with the thread.
"""

from __future__ import annotations

import ctypes
import os
import platform
import stat
import threading
from typing import TYPE_CHECKING, Final

from launcher.errors import IsolationRefused
from providers.base import Facts

if TYPE_CHECKING:
    from materializer.values import Identity

MAX_FACT_BYTES: Final = 1024 * 1024
SETGROUPS: Final = {"x86_64": 116, "aarch64": 159}
"""The system call itself: the C library's `setgroups` would change every thread."""


def read_facts(paths: tuple[str, ...], identity: Identity | None) -> Facts:
    """Return each path's first MAX_FACT_BYTES bytes, or None where no regular file can be read.

    Raises IsolationRefused where this process cannot take the target's identity for reading.
    """
    if identity is None or not paths:
        return Facts({path: _read(path) for path in paths})
    found: dict[str, bytes | None] = {}
    failures: list[OSError] = []

    def read_as_target() -> None:
        try:
            _take_identity(identity)
        except OSError as error:
            failures.append(error)
            return
        found.update({path: _read(path) for path in paths})

    thread = threading.Thread(target=read_as_target, name="amux-facts")
    thread.start()
    thread.join()
    if failures:
        message = f"files cannot be read as user {identity.user}: {failures[0]}"
        raise IsolationRefused(message) from failures[0]
    return Facts(found)


def _take_identity(identity: Identity) -> None:
    """Change this thread's groups and file-system ids, and check that they were changed."""
    number = SETGROUPS.get(platform.machine())
    if number is None or os.geteuid() != 0:
        raise OSError("only root on x86_64 or aarch64 can do that")
    libc = ctypes.CDLL(None, use_errno=True)
    groups = (ctypes.c_uint32 * len(identity.groups))(*identity.groups)
    if libc.syscall(number, len(identity.groups), groups) != 0:
        raise OSError(ctypes.get_errno(), "setgroups failed")
    libc.setfsgid(identity.gid)
    libc.setfsuid(identity.uid)
    if libc.setfsgid(identity.gid) != identity.gid or libc.setfsuid(identity.uid) != identity.uid:
        raise OSError("the kernel kept the file-system identity")


def _read(path: str) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:  # noqa: PTH123  # a descriptor has no Path
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return file.read(MAX_FACT_BYTES)
