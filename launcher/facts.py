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
from typing import TYPE_CHECKING, BinaryIO, Final

from launcher.errors import IsolationRefused
from providers.base import Facts

if TYPE_CHECKING:
    from materializer.values import Identity
    from providers.base import Trace

MAX_FACT_BYTES: Final = 1024 * 1024
MAX_TRACED_BYTES: Final = 1024 * 1024 * 1024
CHUNK_BYTES: Final = 4 * 1024 * 1024
MAX_ENTRIES: Final = 4096
SETGROUPS: Final = {"x86_64": 116, "aarch64": 159}
"""The system call itself: the C library's `setgroups` would change every thread."""


def read_facts(
    paths: tuple[str, ...], identity: Identity | None, traces: tuple[Trace, ...] = ()
) -> Facts:
    """Return each path's first MAX_FACT_BYTES bytes, or None where no regular file can be read.

    A path that ends in `/` is listed: name, size and time of change in nanoseconds, a line each.
    Raises IsolationRefused where this process cannot take the target's identity for reading.
    """
    if identity is None or not (paths or traces):
        return _facts(paths, traces)
    found: list[Facts] = []
    failures: list[OSError] = []

    def read_as_target() -> None:
        try:
            _take_identity(identity)
        except OSError as error:
            failures.append(error)
            return
        found.append(_facts(paths, traces))

    thread = threading.Thread(target=read_as_target, name="amux-facts")
    thread.start()
    thread.join()
    if failures:
        message = f"files cannot be read as user {identity.user}: {failures[0]}"
        raise IsolationRefused(message) from failures[0]
    return found[0]


def _facts(paths: tuple[str, ...], traces: tuple[Trace, ...]) -> Facts:
    return Facts(
        {path: _listing(path) if path.endswith("/") else _read(path) for path in paths},
        frozenset(trace for trace in traces if _holds(trace)),
    )


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
    file = _open(path)
    if file is None:
        return None
    with file:
        return file.read(MAX_FACT_BYTES)


def _holds(trace: Trace) -> bool:
    file = _open(trace.path)
    if file is None:
        return False
    with file:
        kept, seen = b"", 0
        while seen < MAX_TRACED_BYTES and (chunk := file.read(CHUNK_BYTES)):
            if trace.text in kept + chunk:
                return True
            kept = chunk[-len(trace.text) :]
            seen += len(chunk)
    return False


def _listing(path: str) -> bytes | None:
    lines: list[str] = []
    try:
        with os.scandir(path) as entries:
            for entry, _ in zip(entries, range(MAX_ENTRIES), strict=False):
                info = entry.stat()
                lines.append(f"{entry.name}\t{info.st_size}\t{info.st_mtime_ns}\n")
    except OSError:
        return None
    return "".join(sorted(lines)).encode("utf-8", "surrogateescape")


def _open(path: str) -> BinaryIO | None:
    """Open a regular file; None for anything else, or where it cannot be opened."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return open(descriptor, "rb")  # noqa: PTH123  # a descriptor has no Path
