"""Refuse a memory root on a file system whose locks and renames cannot be relied on."""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

from amux.hub.durable import temporary_name
from amux.hub.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable

MOUNT_TABLE: Final = Path("/proc/self/mountinfo")
_NETWORK: Final = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse", "fuseblk", "glusterfs", "gpfs",
        "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "pvfs2", "smb3", "smbfs", "virtiofs",
    }
)  # fmt: skip
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")
# mountinfo: id, parent, device, root, mount point, options, optional fields, -, type, …
_MOUNT_POINT: Final = 4


def file_system_type(folder: Path, table: str) -> str | None:
    """Return the type of the mount that `folder` (resolved) lies on, by a mountinfo table."""
    best: tuple[int, str] | None = None
    for row in table.splitlines():
        left, separator, right = row.partition(" - ")
        columns = left.split(" ")
        if not separator or len(columns) <= _MOUNT_POINT:
            continue
        point = PurePath(_ESCAPE.sub(lambda code: chr(int(code[1], 8)), columns[_MOUNT_POINT]))
        depth = len(point.parts)
        # Of two mounts on one point the later hides the earlier.
        if folder.is_relative_to(point) and (best is None or depth >= best[0]):
            best = depth, right.split(" ")[0]
    return best[1] if best else None


def is_network(kind: str) -> bool:
    """Tell whether a file system type is shared over a network, or by a FUSE program."""
    return kind in _NETWORK or kind.startswith("fuse.")


def require_local(
    root: Path,
    *,
    allow: bool = False,
    table: Path = MOUNT_TABLE,
    lock: Callable[[int, int], object] = fcntl.flock,
) -> None:
    """Refuse a root on nfs, cifs, 9p or fuse unless `allow`, and one where locks do nothing.

    `root` exists; `table` and `lock` are there for tests. Raises StorageFailed, which says
    what was found.
    """
    try:
        kind = file_system_type(root.resolve(strict=True), table.read_text("utf-8"))
    except OSError as error:
        raise StorageFailed(f"the mount of the memory root is unknown: {error}") from error
    if kind is not None and is_network(kind) and not allow:
        raise StorageFailed(
            f"the memory root lies on a file system of type {kind}; put it on a local disk, "
            "or set memory.allow_network_mount if one machine alone uses it",
            file_system=kind,
        )
    try:
        held = _second_lock_succeeds(root, lock)
    except OSError as error:
        raise StorageFailed(f"a lock cannot be tried in the memory root: {error}") from error
    if held:
        raise StorageFailed("file locks do nothing in the memory root; put it on a local disk")


def _second_lock_succeeds(root: Path, lock: Callable[[int, int], object]) -> bool:
    probe = root / temporary_name()
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    first = os.open(probe, flags | os.O_EXCL, 0o600)
    try:
        second = os.open(probe, flags)
        try:
            lock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                lock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True
        finally:
            os.close(second)
    finally:
        os.close(first)
        probe.unlink()
