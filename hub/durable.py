"""Write and delete so that a crash at any step leaves the old document or the new one.

Write: temporary file in the destination folder, write, fsync, exchange of the two names,
fsync the folder. Create: the same, with a rename that replaces nothing. Delete: rename to a
temporary name, fsync the folder. The old file so keeps a name until the folder is on the
disk, and is put back when that fails.

Editors save past the Hub. So what came out of the document's place is looked at before it is
dropped: where it is not what the caller replaces, it goes back, and `Overtaken` is raised.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from amux.hub.documents import FILE_FLAGS
from amux.hub.errors import StorageFailed
from amux.hub.paths import exists

if TYPE_CHECKING:
    from amux.hub.filesystem import FileSystem

TEMPORARY_PREFIX: Final = ".amux-"
TEMPORARY_SUFFIX: Final = ".tmp"
# What renameat2(2) answers where the file system, the kernel or the C library lacks it.
_NO_FLAGS: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTTY})
# So many times an editor may save again while its last save is put back.
_PUT_BACK_MOST: Final = 16
# What link(2) answers on a file system without hard links, and for a file of another
# owner (protected_hardlinks).
_NO_LINKS: Final = frozenset(
    {errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
)


class Overtaken(Exception):
    """Something else stands in the document's place than what the caller replaces."""


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


def replace(files: FileSystem, folder: int, name: str, data: bytes, *, old: bytes | None) -> None:
    """Make `data` the file's content in place of `old`, on the disk when this returns.

    `old` None: there is no such file yet. Raises Overtaken, or OSError; then the file that
    stood there stands.
    """
    temporary = temporary_name()
    try:
        _create(files, folder, temporary, data)
        # Looked at here too: an editor's save then never leaves its place.
        _require(folder, name, old)
    except BaseException:
        with suppress(OSError):
            files.unlink(temporary, folder)
        raise
    if old is None:
        _appear(files, folder, temporary, name)
    else:
        _change(files, folder, temporary, name, old)


def remove(files: FileSystem, folder: int, name: str, *, old: bytes) -> None:
    """Delete the file that holds `old`, gone from the disk when this returns.

    Raises Overtaken, or OSError; then the file that stood there stands.
    """
    kept = temporary_name()
    _require(folder, name, old)
    try:
        files.rename(name, kept, folder)
    except FileNotFoundError:
        raise Overtaken from None
    try:
        _require(folder, kept, old)
        files.fsync(folder)
    except BaseException:
        _return(files, folder, kept, name)
        with suppress(OSError):
            files.fsync(folder)
        raise
    _drop(files, kept, folder)


def holds(folder: int, name: str, data: bytes) -> bool:
    """Tell whether a regular file of this name holds exactly these bytes."""
    try:
        file = os.open(name, FILE_FLAGS, dir_fd=folder)
    except OSError:
        return False
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size != len(data):
            return False
        return os.read(file, len(data) + 1) == data
    finally:
        os.close(file)


def _require(folder: int, name: str, old: bytes | None) -> None:
    if not (holds(folder, name, old) if old is not None else not exists(name, folder)):
        raise Overtaken


def _create(files: FileSystem, folder: int, name: str, data: bytes) -> None:
    file = files.create(name, folder)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[files.write(file, bytes(rest)) :]
        files.fsync(file)
    finally:
        os.close(file)


def _appear(files: FileSystem, folder: int, temporary: str, name: str) -> None:
    """Give a new document its name, where none may stand."""
    try:
        _rename_new(files, temporary, name, folder)
    except OSError as error:
        _drop(files, temporary, folder)
        if isinstance(error, FileExistsError):
            raise Overtaken from None
        raise
    ours = _identity(folder, name)
    try:
        files.fsync(folder)
    except BaseException:
        with suppress(OSError):
            files.rename(name, temporary, folder)
            if _identity(folder, temporary) == ours:
                files.unlink(temporary, folder)
            else:  # an editor has saved over it meanwhile
                _return(files, folder, temporary, name)
        with suppress(OSError):
            files.fsync(folder)
        raise


def _change(files: FileSystem, folder: int, temporary: str, name: str, old: bytes) -> None:
    """Exchange the new document with the one that holds `old`."""
    ours = _identity(folder, temporary)
    try:
        files.exchange(temporary, name, folder)
    except OSError as error:
        if error.errno in _NO_FLAGS:
            _overwrite(files, folder, temporary, name, old)
            return
        _drop(files, temporary, folder)
        if isinstance(error, FileNotFoundError):
            raise Overtaken from None
        raise
    try:
        _require(folder, temporary, old)
        files.fsync(folder)
    except BaseException:
        with suppress(OSError):
            _put_back(files, folder, temporary, name, ours)
            files.unlink(temporary, folder)
        with suppress(OSError):
            files.fsync(folder)
        raise
    _drop(files, temporary, folder)


def _put_back(
    files: FileSystem, folder: int, kept: str, name: str, inside: tuple[int, ...] | None
) -> None:
    """Exchange again until what comes out is what was put in: an editor may save meanwhile.

    `inside` is the identity of what was put in first.
    """
    for _ in range(_PUT_BACK_MOST):
        putting = _identity(folder, kept)
        try:
            files.exchange(kept, name, folder)
        except FileNotFoundError:  # moved aside by an editor that is about to write anew
            _rename_new(files, kept, name, folder)
            return
        if _identity(folder, kept) == inside:
            return
        inside = putting


def _return(files: FileSystem, folder: int, kept: str, name: str) -> None:
    """Give a file its name back, unless a newer one has taken it."""
    try:
        _rename_new(files, kept, name, folder)
    except FileExistsError:
        _drop(files, kept, folder)
    except OSError:
        return


def _overwrite(files: FileSystem, folder: int, temporary: str, name: str, old: bytes) -> None:
    """Rename over the old document, on a file system that cannot exchange two names.

    The old file gets a second name meanwhile, where there are hard links. An editor's save
    between the look and the rename is lost.
    """
    kept = temporary_name()
    try:
        _require(folder, name, old)
        kept = _second_name(files, folder, name, kept)
        files.rename(temporary, name, folder)
        files.fsync(folder)
    except BaseException:
        with suppress(OSError):
            if kept:
                # Of two names of one file rename() leaves both: then nothing had happened.
                files.rename(kept, name, folder)
                files.unlink(kept, folder)
        _drop(files, temporary, folder)
        with suppress(OSError):
            files.fsync(folder)
        raise
    if kept:
        _drop(files, kept, folder)


def _second_name(files: FileSystem, folder: int, name: str, kept: str) -> str:
    """Link the file to `kept` and return that, or an empty text where there are no links."""
    try:
        files.link(name, kept, folder)
    except FileNotFoundError:
        raise Overtaken from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return ""
    return kept


def _rename_new(files: FileSystem, old: str, new: str, folder: int) -> None:
    """Rename without replacing, as well as the file system can; raises FileExistsError."""
    try:
        files.rename_new(old, new, folder)
    except OSError as error:
        if error.errno not in _NO_FLAGS:
            raise
        if exists(new, folder):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        files.rename(old, new, folder)


def _drop(files: FileSystem, name: str, folder: int) -> None:
    """Remove a temporary name; one that stays is swept at the next start."""
    with suppress(OSError):
        files.unlink(name, folder)


def _identity(folder: int, name: str) -> tuple[int, ...] | None:
    """Return what an editor's save changes about a file, or None where there is none."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
