"""Which folder a home is: its device, its inode, and a random identity that a copy loses.

A home can be copied with all that lies in it: lock, sockets, credentials, session records. What
they say is about the folder in which they were written. `home.id` holds three words: the random
identity, and the device and inode that it was given to; in any other folder it is a copy's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from amux.hub.errors import HomeRefused

if TYPE_CHECKING:
    from pathlib import Path

IDENTITY_FILE: Final = "home.id"
HOME_HEADER: Final = "Amux-Home"
_FORM: Final = re.compile(rb"([0-9a-f]{32}) ([0-9]+) ([0-9]+)\n")
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Residence:
    """One folder as a home; `identity` is empty where none could be written."""

    device: int
    inode: int
    identity: str

    @property
    def text(self) -> str:
        """Return the form that a caller sends and a lock file holds."""
        return f"{self.device}:{self.inode}:{self.identity}"


def residence(home: Path) -> Residence:
    """Return which folder this is, without writing; a copy has no identity yet.

    Raises HomeRefused when the folder cannot be looked at.
    """
    folder = _open(home)
    try:
        return _read(folder)
    finally:
        os.close(folder)


def settle(home: Path) -> Residence:
    """Return which folder this is, with an identity of its own where the disk takes one."""
    folder = _open(home)
    try:
        found = _read(folder)
        if not found.identity:
            with contextlib.suppress(OSError):
                fcntl.flock(folder, fcntl.LOCK_EX)
                found = _read(folder)
                if not found.identity:
                    _write(folder, found)
                    found = _read(folder)
        return found
    finally:
        os.close(folder)


def _open(home: Path) -> int:
    try:
        return os.open(home, _FOLDER)
    except OSError as error:
        raise HomeRefused(f"cannot open {home}: {error.strerror}") from error


def _read(folder: int) -> Residence:
    info = os.fstat(folder)
    data = b""
    with contextlib.suppress(OSError):
        file = os.open(IDENTITY_FILE, _FLAGS, dir_fd=folder)
        try:
            data = os.read(file, 256)
        finally:
            os.close(file)
    found = _FORM.fullmatch(data)
    ours = found is not None and (int(found[2]), int(found[3])) == (info.st_dev, info.st_ino)
    return Residence(info.st_dev, info.st_ino, found[1].decode() if found and ours else "")


def _write(folder: int, here: Residence) -> None:
    """Put a new identity in place as a whole; the caller holds the folder's lock."""
    temporary = f".{IDENTITY_FILE}.{secrets.token_hex(6)}.tmp"
    file = os.open(temporary, _NEW_FILE, 0o600, dir_fd=folder)
    try:
        os.write(file, f"{secrets.token_hex(16)} {here.device} {here.inode}\n".encode())
        os.fsync(file)
        os.rename(temporary, IDENTITY_FILE, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    finally:
        os.close(file)
