"""Write and delete so that a crash at any step leaves the old document or the new one.

Write: temporary file in the destination folder, write, fsync, rename, fsync the folder.
Delete: unlink, fsync the folder. Before the step that shows, the old file gets a second
name, so that it can be put back when the folder's fsync fails.
"""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from hub.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

TEMPORARY_PREFIX: Final = ".amux-"
TEMPORARY_SUFFIX: Final = ".tmp"
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# What link(2) answers on a file system without hard links, and for a file of another
# owner (protected_hardlinks).
_NO_LINKS: Final = frozenset(
    {errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
)


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

    def unlink(self, name: str, folder: int) -> None:
        """Remove a name."""
        os.unlink(name, dir_fd=folder)

    def mkdir(self, name: str, folder: int) -> None:
        """Make a folder of mode 0700."""
        os.mkdir(name, 0o700, dir_fd=folder)

    def rmdir(self, name: str, folder: int) -> None:
        """Remove an empty folder."""
        os.rmdir(name, dir_fd=folder)


def temporary_name() -> str:
    """Return a name that no document can have and that the sweep recognises."""
    return f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}{TEMPORARY_SUFFIX}"


def is_temporary(name: str) -> bool:
    """Tell whether a name is one of ours that a crash left behind."""
    return name.startswith(TEMPORARY_PREFIX) and name.endswith(TEMPORARY_SUFFIX)


def refusal(error: OSError) -> StorageFailed:
    """Return the error that answers a failed system call; it names no path."""
    reason = error.strerror or type(error).__name__
    return StorageFailed(f"the file system refused ({reason}); read the document, then try again")


def replace(files: FileSystem, folder: int, name: str, data: bytes) -> None:
    """Make `data` the file's content, on the disk when this returns; raises OSError."""
    temporary = temporary_name()
    try:
        _create(files, folder, temporary, data)
        with _undoable(files, folder, name):
            files.rename(temporary, name, folder)
            files.fsync(folder)
    except BaseException:
        with suppress(OSError):
            files.unlink(temporary, folder)
        raise


def remove(files: FileSystem, folder: int, name: str) -> None:
    """Delete the file, on the disk when this returns; raises OSError."""
    with _undoable(files, folder, name):
        files.unlink(name, folder)
        files.fsync(folder)


def _create(files: FileSystem, folder: int, name: str, data: bytes) -> None:
    file = files.create(name, folder)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[files.write(file, bytes(rest)) :]
        files.fsync(file)
    finally:
        os.close(file)


@contextmanager
def _undoable(files: FileSystem, folder: int, name: str) -> Iterator[None]:
    """Keep the old file under a second name meanwhile, and put it back on a failure."""
    kept = temporary_name()
    existed = True
    try:
        files.link(name, kept, folder)
    except FileNotFoundError:
        existed, kept = False, ""
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        kept = ""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            if kept:
                # Of two names of one file rename() leaves both: then nothing had happened.
                files.rename(kept, name, folder)
                files.unlink(kept, folder)
            elif not existed:
                files.unlink(name, folder)
        with suppress(OSError):
            files.fsync(folder)
        raise
    if kept:
        with suppress(OSError):
            files.unlink(kept, folder)
