"""Folders and files through descriptors only: no path is looked up twice, no link is followed."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
HANDLE: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Opens also a folder that the caller may pass through but not list."""
NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
ACL_ATTRIBUTES: Final = ("system.posix_acl_access", "system.posix_acl_default")
OTHERS_WRITE: Final = 0o022


class Untrusted(Exception):
    """A folder of the path belongs to another account, or another account can write to it."""


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
        set_owner(fd, os.geteuid(), os.getegid(), mode)
    except OSError:
        os.close(fd)
        raise
    return fd


def set_owner(fd: int, uid: int, gid: int, mode: int) -> None:
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


def allow_reading(fd: int, uid: int) -> bool:
    """Let one account read a file of the service's; return False where there are no ACLs.

    The mode is 0440 afterwards: the group bits show the ACL's mask, the group itself has nothing.
    """
    try:
        os.setxattr(fd, ACL_ATTRIBUTES[0], _acl_for_reader(uid))
    except OSError as error:
        if error.errno in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:
            return False
        raise
    return True


def _acl_for_reader(uid: int) -> bytes:
    """Encode `u::r,u:UID:r,g::-,m::r,o::-` as the kernel keeps it (version 2, little-endian)."""
    unused = 0xFFFF_FFFF
    entries = ((1, 4, unused), (2, 4, uid), (4, 0, unused), (16, 4, unused), (32, 0, unused))
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
    fd = os.open("/", HANDLE)
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
        return os.open(segment, HANDLE, dir_fd=fd)
    except FileNotFoundError:
        if make is None:
            raise
    with contextlib.suppress(FileExistsError):  # another launch made it just now
        os.close(make_folder(fd, segment, make))
    return os.open(segment, HANDLE, dir_fd=fd)


def require_trusted(path: Path, fd: int, *, last: bool) -> None:
    """Raise Untrusted if anybody but root and the service could change what is below.

    A sticky folder such as /tmp may be on the path, but no files are put into it (`last`).
    """
    found = os.fstat(fd)
    if found.st_uid not in {0, os.geteuid()}:
        raise Untrusted(f"{path} belongs to uid {found.st_uid}")
    if found.st_mode & OTHERS_WRITE and (last or not found.st_mode & stat.S_ISVTX):
        mode = stat.S_IMODE(found.st_mode)
        raise Untrusted(f"{path} is writable for others (mode {mode:04o})")


def mount_of(fd: int) -> int:
    """Return the id of the mount that an open file is on: bind mounts share a device number."""
    with open(f"/proc/self/fdinfo/{fd}", "rb") as file:  # noqa: PTH123  # one open, no Path
        for line in file:
            if line.startswith(b"mnt_id:"):
                return int(line.split()[1])
    return 0


def entries(fd: int) -> list[str]:
    """Return the names in an open folder."""
    with os.scandir(fd) as found:
        return [entry.name for entry in found]
