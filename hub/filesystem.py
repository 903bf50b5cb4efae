"""The system calls by which the store changes something, each below an open folder."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Final

_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# The flags of renameat2(2).
_NOREPLACE: Final = 1
_EXCHANGE: Final = 2

_libc: Final = ctypes.CDLL(None, use_errno=True)


class FileSystem:
    """The system calls that change something; a test puts a failing one in their place."""

    def scan(self, folder: int) -> os._ScandirIterator[str]:
        """List an open folder."""
        return os.scandir(folder)

    def create(self, name: str, folder: int) -> int:
        """Create a file of mode 0600 that does not exist yet."""
        return os.open(name, _NEW_FILE, 0o600, dir_fd=folder)

    def write(self, file: int, data: bytes) -> int:
        """Write some of `data`, returning how much."""
        return os.write(file, data)

    def fsync(self, file: int) -> None:
        """Bring a file or a folder to the disk."""
        os.fsync(file)

    def link(self, old: str, new: str, folder: int) -> None:
        """Give a file a second name in the same folder."""
        os.link(old, new, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)

    def rename(self, old: str, new: str, folder: int) -> None:
        """Put a file in another's place in the same folder."""
        os.rename(old, new, src_dir_fd=folder, dst_dir_fd=folder)

    def exchange(self, one: str, other: str, folder: int) -> None:
        """Let two files of a folder change their names in one step."""
        _rename_at(one, other, folder, _EXCHANGE)

    def rename_new(self, old: str, new: str, folder: int) -> None:
        """Rename in the same folder; raises FileExistsError where the new name is taken."""
        _rename_at(old, new, folder, _NOREPLACE)

    def unlink(self, name: str, folder: int) -> None:
        """Remove a name."""
        os.unlink(name, dir_fd=folder)

    def mkdir(self, name: str, folder: int) -> None:
        """Make a folder of mode 0700."""
        os.mkdir(name, 0o700, dir_fd=folder)

    def rmdir(self, name: str, folder: int) -> None:
        """Remove an empty folder."""
        os.rmdir(name, dir_fd=folder)


def _rename_at(old: str, new: str, folder: int, flags: int) -> None:
    call = getattr(_libc, "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if call(folder, os.fsencode(old), folder, os.fsencode(new), flags):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
