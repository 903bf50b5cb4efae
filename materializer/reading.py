"""Read files that somebody else may have put there: bounded, regular files only, never waiting.

Standard library only, and little of it: `provisioner` imports this file in a child that is the
target, `launcher.facts` in the service itself for its own account's files.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

MAX_TRACED_BYTES = 1024 * 1024 * 1024
CHUNK_BYTES = 4 * 1024 * 1024
MAX_ENTRIES = 4096


def content(path: bytes, limit: int) -> bytes | None:
    """Return the file's first `limit` bytes; None where no regular file can be read.

    A last segment `*.ending` stands for each such file of its folder: name, NUL, content, NUL.
    """
    folder, _, name = path.rpartition(b"/")
    if name.startswith(b"*."):
        return _each(folder, name[1:], limit)
    file = _open(path)
    if file is None:
        return None
    with file:
        return file.read(limit)


def _each(folder: bytes, ending: bytes, limit: int) -> bytes | None:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(ending))
    except OSError:
        return None
    found = b""
    for name in names[:MAX_ENTRIES]:
        text = content(folder + b"/" + name, limit) if not name.startswith(b"*") else None
        if text is not None and len(found) + len(text) < limit:
            found += name + b"\0" + text.replace(b"\0", b"") + b"\0"
    return found


def holds(path: bytes, text: bytes) -> bool:
    """Say whether a file, which may be long, holds this text; `FOLDER/*/NAME` is any such file."""
    folder, star, name = path.partition(b"/*/")
    if star:
        return any(holds(folder + b"/" + one + b"/" + name, text) for one in _names(folder))
    file = _open(path)
    if file is None:
        return False
    with file:
        kept, seen = b"", 0
        while seen < MAX_TRACED_BYTES and (chunk := file.read(CHUNK_BYTES)):
            if text in kept + chunk:
                return True
            kept = chunk[-len(text) :]
            seen += len(chunk)
    return False


def _names(folder: bytes) -> list[bytes]:
    try:
        return [name for name in os.listdir(folder) if b"*" not in name][:MAX_ENTRIES]  # noqa: PTH208  # bytes, which Path is not
    except OSError:
        return []


def listing(path: bytes) -> bytes | None:
    """Return name, size and time of change in nanoseconds, a line each; None for no folder."""
    lines = []
    try:
        with os.scandir(path) as entries:
            for entry, _ in zip(entries, range(MAX_ENTRIES), strict=False):
                lines.append(_line(entry))
    except OSError:
        return None
    return b"".join(sorted(lines))


def _line(entry: os.DirEntry[bytes]) -> bytes:
    try:
        info = entry.stat()
    except OSError:  # a link to nowhere
        info = entry.stat(follow_symlinks=False)
    return b"%s\t%d\t%d\n" % (entry.name, info.st_size, info.st_mtime_ns)


def _open(path: bytes) -> BinaryIO | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return open(descriptor, "rb")  # noqa: PTH123  # a descriptor has no Path
