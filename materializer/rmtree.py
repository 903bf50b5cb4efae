"""Remove folders while another account may still be adding, moving and hiding things in them.

Standard library only: the worker of `removal` uses this as the target, the service for its own.
"""

from __future__ import annotations

import itertools
import os
import secrets
from pathlib import Path

from amux.materializer import descriptors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

BATCH = 4096
"""Entries that are listed at once."""


def remove(parent: int, name: str, owners: frozenset[int]) -> bool:
    """Remove the folder `name` and all below it; return whether nothing is left.

    A folder of another owner, or a mount point, is left as it is: see `remove_contents`.
    """
    top = take_over(parent, name, owners)
    if top is None:
        return False
    with descriptors.closing(top):
        left = remove_contents(top, owners)
    return not left and _unlink(parent, name)


def remove_contents(top: int, owners: frozenset[int]) -> tuple[str, ...]:
    """Remove all below an open folder of the caller's; return the paths that are left in it.

    Only folders of these owners are entered, and each is first taken over, so that no other
    account can add or swap entries meanwhile. Subfolders are moved up before they are emptied:
    neither depth nor path length matters. What belongs to others keeps its owner and mode.
    """
    refused: dict[str, list[str]] = {}
    while entries := _batch(top, refused):
        left = {entry: _remove_entry(top, entry, owners) for entry in entries}
        refused |= {entry: paths for entry, paths in left.items() if paths}
    return tuple(sorted(path for paths in refused.values() for path in paths))


def _remove_entry(top: int, name: str, owners: frozenset[int]) -> list[str]:
    """Remove one entry of the folder `top`; its subfolders are moved up for the next round.

    Returns the paths that are left of it.
    """
    if _unlink(top, name):
        return []
    fd = take_over(top, name, owners)
    if fd is None:
        return [name]
    with descriptors.closing(fd):
        left: set[str] = set()
        while entries := _batch(fd, left):
            left |= {
                entry
                for entry in entries
                if not _unlink(fd, entry) and not _move_up(fd, entry, top, owners)
            }
    if left:
        return [f"{name}/{entry}" for entry in left]
    return [] if _unlink(top, name) else [name]


def _move_up(parent: int, name: str, top: int, owners: frozenset[int]) -> bool:
    """Move a folder of these owners to the top; return whether it is there now.

    A mount point cannot be moved.
    """
    for _ in range(2):
        try:
            # Checked first: what is at the top is removed without another look at its owner.
            if os.stat(name, dir_fd=parent, follow_symlinks=False).st_uid not in owners:
                return False
            os.rename(name, secrets.token_hex(16), src_dir_fd=parent, dst_dir_fd=top)
        except PermissionError:  # to move a folder, its own mode must allow writing
            fd = take_over(parent, name, owners)
            if fd is None:
                return False
            os.close(fd)
        except OSError:
            return False
        else:
            return True
    return False


def _unlink(parent: int, name: str) -> bool:
    """Remove a file, link, socket or empty folder; return whether it is gone."""
    for remove in (os.unlink, os.rmdir):
        try:
            remove(name, dir_fd=parent)
        except FileNotFoundError:
            return True
        except OSError:
            continue
        return True
    return False


def take_over(parent: int, name: str, owners: frozenset[int]) -> int | None:
    """Open a folder of one of these owners and give it to the caller, mode 0700.

    None for anything else, and for a mount point: what is mounted there is not the run's.
    """
    try:
        handle = os.open(name, descriptors.HANDLE, dir_fd=parent)
    except OSError:
        return None
    fd = None
    try:
        if os.fstat(handle).st_uid not in owners or descriptors.mount_of(
            handle
        ) != descriptors.mount_of(parent):
            return None
        # The target may have removed every permission, even its own.
        Path(f"/proc/self/fd/{handle}").chmod(0o700)
        fd = os.open(".", descriptors.FOLDER, dir_fd=handle)
        descriptors.set_owner(fd, os.geteuid(), os.getegid(), 0o700)
    except OSError:  # as on a FUSE file system of the target's
        if fd is not None:
            os.close(fd)
        return None
    finally:
        os.close(handle)
    return fd


def _batch(fd: int, without: Container[str]) -> list[str]:
    """List at most BATCH entries: a folder may hold millions."""
    with os.scandir(fd) as entries:
        wanted = (entry.name for entry in entries if entry.name not in without)
        return list(itertools.islice(wanted, BATCH))
