"""Folders and files through descriptors only: no path is looked up twice, no link is followed."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PASSAGE: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
ACL_ATTRIBUTES: Final = ("system.posix_acl_access", "system.posix_acl_default")
BATCH: Final = 4096
OTHERS_WRITE: Final = 0o022


class Untrusted(Exception):
    """A folder on the way belongs to somebody else, or somebody else can write to it."""


@contextlib.contextmanager
def closing(fd: int) -> Iterator[int]:
    """Close the descriptor at the end."""
    try:
        yield fd
    finally:
        os.close(fd)


def make_folder(parent: int, name: str, mode: int) -> int:
    """Make a folder of the service with exactly this mode and no ACL; return its descriptor."""
    os.mkdir(name, 0o700, dir_fd=parent)
    fd = os.open(name, FOLDER, dir_fd=parent)
    try:
        own(fd, os.geteuid(), os.getegid(), mode)
    except OSError:
        os.close(fd)
        raise
    return fd


def own(fd: int, uid: int, gid: int, mode: int) -> None:
    """Give an open folder or file its final mode and owner, free of inherited ACLs."""
    for attribute in ACL_ATTRIBUTES:
        try:
            os.removexattr(fd, attribute)
        except OSError as error:
            if error.errno not in {errno.ENODATA, errno.EOPNOTSUPP, errno.EINVAL, errno.EACCES}:
                raise
    # Before the owner: afterwards only CAP_FOWNER may.
    os.fchmod(fd, mode)
    found = os.fstat(fd)
    if (found.st_uid, found.st_gid) != (uid, gid):
        os.fchown(fd, uid, gid)


def lend(fd: int, uid: int) -> bool:
    """Let one account read a file of the service's; False where the file system has no ACLs.

    Its mode then shows 0440: the group bits are the ACL's mask, and the group itself has nothing.
    """
    try:
        os.setxattr(fd, ACL_ATTRIBUTES[0], _reader(uid))
    except OSError as error:
        if error.errno in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:
            return False
        raise
    return True


def _reader(uid: int) -> bytes:
    """Encode `u::r,u:UID:r,g::-,m::r,o::-` as the kernel keeps it (version 2, little-endian)."""
    nobody = 0xFFFF_FFFF
    entries = ((1, 4, nobody), (2, 4, uid), (4, 0, nobody), (16, 4, nobody), (32, 0, nobody))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def make_file(parent: int, name: str, content: bytes) -> int:
    """Write a new file, readable by the service only; return its descriptor."""
    fd = os.open(name, NEW_FILE, 0o400, dir_fd=parent)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        os.close(fd)
        raise
    return fd


def walk(path: Path, *, make: int | None = None) -> Iterator[tuple[Path, int]]:
    """Yield each folder from `/` to `path` with a descriptor that is open until the next step.

    A missing folder is made with mode `make`, if given. Links are not followed: resolve first.
    """
    fd = os.open("/", PASSAGE)
    at = Path("/")
    try:
        yield at, fd
        for segment in path.parts[1:]:
            below = _step(fd, segment, make)
            os.close(fd)
            fd = below
            at /= segment
            yield at, fd
    finally:
        os.close(fd)


def _step(fd: int, segment: str, make: int | None) -> int:
    try:
        return os.open(segment, PASSAGE, dir_fd=fd)
    except FileNotFoundError:
        if make is None:
            raise
    with contextlib.suppress(FileExistsError):  # another launch made it just now
        os.close(make_folder(fd, segment, make))
    return os.open(segment, PASSAGE, dir_fd=fd)


def require_trusted(path: Path, fd: int, *, last: bool) -> None:
    """Raise Untrusted if somebody besides root and the service could change what is below.

    A sticky folder such as /tmp is passed through, but is not itself a place to put files.
    """
    found = os.fstat(fd)
    if found.st_uid not in {0, os.geteuid()}:
        raise Untrusted(f"{path} belongs to uid {found.st_uid}")
    if found.st_mode & OTHERS_WRITE and (last or not found.st_mode & stat.S_ISVTX):
        mode = stat.S_IMODE(found.st_mode)
        raise Untrusted(f"{path} is writable for others (mode {mode:04o})")


def empty(parent: int, name: str, owners: frozenset[int]) -> bool:
    """Remove the folder `name` and all below it; return whether nothing is left.

    See `clear`; a folder of others, or a mount point, is left as it is.
    """
    top = take(parent, name, owners)
    if top is None:
        return False
    with closing(top):
        left = clear(top, owners)
    return not left and _unlink(parent, name)


def clear(top: int, owners: frozenset[int]) -> tuple[str, ...]:
    """Remove all below an open folder of the caller's; return the paths that are left in it.

    Only folders of these owners are entered, and each is first taken over, so that nobody can
    add or swap entries meanwhile. Subfolders are moved up before they are emptied: neither
    depth nor path length matters. What belongs to others is left, as its owner left it.
    """
    refused: dict[str, list[str]] = {}
    while entries := _some(top, refused):
        left = {entry: _clear(top, entry, owners) for entry in entries}
        refused |= {entry: paths for entry, paths in left.items() if paths}
    return tuple(sorted(path for paths in refused.values() for path in paths))


def _clear(top: int, name: str, owners: frozenset[int]) -> list[str]:
    """Remove one entry of the taken folder; subfolders of it are moved up for the next round.

    Returns what is left of it.
    """
    if _unlink(top, name):
        return []
    fd = take(top, name, owners)
    if fd is None:
        return [name]
    with closing(fd):
        left: set[str] = set()
        while entries := _some(fd, left):
            left |= {
                entry
                for entry in entries
                if not _unlink(fd, entry) and not _move_up(fd, entry, top, owners)
            }
    if left:
        return [f"{name}/{entry}" for entry in left]
    return [] if _unlink(top, name) else [name]


def _move_up(parent: int, name: str, top: int, owners: frozenset[int]) -> bool:
    """Move a folder of these owners to the top; say whether it is there. A mount point stays."""
    for _ in range(2):
        try:
            # Checked before, since whatever lies at the top is taken for the target's.
            if os.stat(name, dir_fd=parent, follow_symlinks=False).st_uid not in owners:
                return False
            os.rename(name, secrets.token_hex(16), src_dir_fd=parent, dst_dir_fd=top)
        except PermissionError:  # its owner too has to be able to write to it
            fd = take(parent, name, owners)
            if fd is None:
                return False
            os.close(fd)
        except OSError:
            return False
        else:
            return True
    return False


def _unlink(parent: int, name: str) -> bool:
    """Remove a file, link, socket or empty folder; say whether it is gone."""
    for remove in (os.unlink, os.rmdir):
        try:
            remove(name, dir_fd=parent)
        except FileNotFoundError:
            return True
        except OSError:
            continue
        return True
    return False


def take(parent: int, name: str, owners: frozenset[int]) -> int | None:
    """Open a folder of one of these owners and make it the caller's alone; None if it is not.

    None too where something is mounted: that is nobody's rubbish, whoever owns it.
    """
    try:
        passage = os.open(name, PASSAGE, dir_fd=parent)
    except OSError:
        return None
    fd = None
    try:
        if os.fstat(passage).st_uid not in owners or mount_of(passage) != mount_of(parent):
            return None
        # Its owner may have taken every permission away, and then only its owner can look.
        Path(f"/proc/self/fd/{passage}").chmod(0o700)
        fd = os.open(".", FOLDER, dir_fd=passage)
        own(fd, os.geteuid(), os.getegid(), 0o700)
    except OSError:  # a filesystem of the target's own is mounted there, say
        if fd is not None:
            os.close(fd)
        return None
    finally:
        os.close(passage)
    return fd


def mount_of(fd: int) -> int:
    """Return the number of the mount that an open file lies on: bind mounts share a device."""
    with open(f"/proc/self/fdinfo/{fd}", "rb") as file:  # noqa: PTH123  # one open, no Path
        for line in file:
            if line.startswith(b"mnt_id:"):
                return int(line.split()[1])
    return 0


def _some(fd: int, without: Container[str]) -> list[str]:
    """List so many entries that a folder of millions needs no memory to match."""
    with os.scandir(fd) as entries:
        wanted = (entry.name for entry in entries if entry.name not in without)
        return list(itertools.islice(wanted, BATCH))


def names(fd: int) -> list[str]:
    """List an open folder."""
    with os.scandir(fd) as entries:
        return [entry.name for entry in entries]
