"""Read files that somebody else may have put there: bounded, regular files only, never waiting.

Standard library only, and little of it: `fileworker` uses this as the target,
`amux.launcher.steps.read_files` in the service itself for files of its own account.
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
TAIL_BYTES = 64 * 1024
"""How much in front of a place in a file says whether it is still the same file."""


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


def contains(path: bytes, text: bytes) -> bool:
    """Say whether a file, which may be long, contains this text.

    `FOLDER/*/NAME` stands for each such file.
    """
    folder, star, name = path.partition(b"/*/")
    if star:
        return any(contains(folder + b"/" + one + b"/" + name, text) for one in _names(folder))
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


def matching(pattern: bytes, since: int = 0) -> list[bytes]:
    """Return the regular files that match, newest first; `*` stands for anything in a segment.

    Only those changed at `since` (nanoseconds) or later. Entries of a folder past MAX_ENTRIES are
    left out.
    """
    found = [b"/"]
    for segment in pattern.strip(b"/").split(b"/"):
        found = [path for folder in found for path in _entries(folder, segment)][-MAX_ENTRIES:]
    files = []
    for path in found:
        try:
            info = os.stat(path)  # noqa: PTH116  # bytes
        except OSError:
            continue
        if stat.S_ISREG(info.st_mode) and info.st_mtime_ns >= since:
            files.append((info.st_mtime_ns, path))
    return [path for _, path in sorted(files, reverse=True)]


def _entries(folder: bytes, segment: bytes) -> list[bytes]:
    if b"*" not in segment:
        return [os.path.join(folder, segment)]  # noqa: PTH118  # bytes
    import fnmatch  # noqa: PLC0415  # every isolated launch imports this file, few need it

    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208  # bytes
    except OSError:
        return []
    return [
        os.path.join(folder, name)  # noqa: PTH118  # bytes
        for name in names
        if fnmatch.fnmatchcase(name, segment)
    ]


def appended(pattern: bytes, since: int, digest: bytes, limit: int) -> bytes | None:
    """Return how the newest matching file stands and its whole lines behind `since`.

    The answer is path, size, start, digest and content, with a NUL between them. `size` ends with
    the last whole line, `digest` is the hex SHA-256 of the TAIL_BYTES in front of it. `start` is
    where the content begins: at `since`; at 0 where `digest` is not that of the file in front of
    `since`, which was then written anew; later where there is more than `limit`. None: no file.
    """
    for path in matching(pattern):
        file = _open(path)
        if file is None:
            continue
        with file:
            if since and _tail(file, since) != digest:
                since = 0
            end = file.seek(0, os.SEEK_END)
            start = max(since, end - limit)
            file.seek(start)
            content = file.read(end - start)
            if start > since:
                start, content = _from_line(start, content)
            content = content[: content.rfind(b"\n") + 1]
            size = start + len(content)
            return b"\0".join(
                (path, b"%d" % size, b"%d" % start, _tail(file, size) or b"", content)
            )
    return None


def _from_line(start: int, content: bytes) -> tuple[int, bytes]:
    cut = content.find(b"\n") + 1
    return start + cut, content[cut:]


def _tail(file: BinaryIO, end: int) -> bytes | None:
    """Digest what stands in front of `end`; None where the file is shorter."""
    import hashlib  # noqa: PLC0415  # every isolated launch imports this file, few need it

    start = max(0, end - TAIL_BYTES)
    file.seek(start)
    text = file.read(end - start)
    return hashlib.sha256(text).hexdigest().encode() if len(text) == end - start else None


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
