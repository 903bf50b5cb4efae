"""The worker of `filerequests`: make folders and files in the target's home, and read its files.

Standard library only, and little of it: each launch may wait for this. Standard input carries
NUL-ended fields: uid (empty: keep this identity), gid, groups with commas, home, limit; then pairs
of a kind and a path:

    folder                        make the folder below the home where it is missing
    copy-SOURCE-DIGEST-OLD        copy an open file to a path below the home; OLD is the digest of
                                  what may be replaced, `always` or `none`
    read, list                    a file or a folder
    contains-HEX                  whether a file contains this text
    appended-SINCE-DIGEST         what was appended to the newest file that matches a pattern
    newer-SINCE                   the files that match a pattern and have changed since

Standard output answers with a word and a size, then so many bytes: `made PATH` and `kept PATH`,
`read CONTENT` or `none` for each path that was to be read, listed or searched, and last
`error SENTENCE` or `done`.
"""

from __future__ import annotations

import os
import sys

from amux.materializer import privileges, reading

HANDLE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
CHUNK = 65_536
UMASK = 0o077
MAKES = (b"folder", b"copy")


def main() -> None:
    """Take on the target's identity, do what is asked, answer."""
    uid, gid, groups, home, limit, *fields = sys.stdin.buffer.read().split(b"\0")[:-1]
    requests = list(zip(fields[::2], fields[1::2], strict=True))
    _import_for(requests)
    path = b"."
    try:
        if uid:
            privileges.drop(privileges.Ids.parse(uid, gid, groups))
        os.umask(UMASK)
        for kind, path in requests:
            _do(kind, path, home, int(limit))
    except privileges.NotDropped as error:
        _answer(b"error", str(error).encode())
    except NotADirectoryError:
        why = b": a link or a file is in the way; folders reached through links are not used"
        _answer(b"error", path + why)
    except OSError as error:
        _answer(b"error", path + f": {error.strerror}".encode())
    else:
        _answer(b"done", b"")


def _import_for(requests: list[tuple[bytes, bytes]]) -> None:
    """Import what only some requests need, as long as our Python can be read."""
    if any(kind.startswith((b"appended-", b"newer-", b"copy-")) for kind, _ in requests):
        import fnmatch  # noqa: F401, PLC0415
        import hashlib  # noqa: F401, PLC0415


def _do(kind: bytes, path: bytes, home: bytes, limit: int) -> None:
    if kind.startswith(MAKES):
        for word, made in _make(home, kind, path):
            _answer(word, made)
        return
    found = _look(kind, path, limit)
    _answer(b"none" if found is None else b"read", found or b"")


def _answer(word: bytes, content: bytes) -> None:
    sys.stdout.buffer.write(b"%s %d\n%s" % (word, len(content), content))


def _look(kind: bytes, path: bytes, limit: int) -> bytes | None:
    word, *arguments = kind.split(b"-")
    if word == b"read":
        return reading.content(path, limit)
    if word == b"list":
        return reading.listing(path)
    if word == b"appended":
        since, digest = arguments
        return reading.appended(path, int(since), digest, limit)
    if word == b"newer":
        return b"\0".join(reading.matching(path, int(arguments[0])))
    return b"" if reading.contains(path, bytes.fromhex(arguments[0].decode())) else None


def _make(home: bytes, kind: bytes, path: bytes) -> list[tuple[bytes, bytes]]:
    """Make a folder or a copy; return the answers that say so."""
    if kind == b"folder":
        return [(b"made", one) for one in _folder(home, path)]
    _, source, new, old = kind.split(b"-")
    made, kept = _copy(home, path, int(source), (new, old))
    return [*((b"made", one) for one in made), *([(b"kept", path)] if kept else [])]


def _folder(home: bytes, path: bytes) -> list[bytes]:
    folder, made = _descend(home, path.split(b"/"))
    os.close(folder)
    return made


def _descend(home: bytes, segments: list[bytes]) -> tuple[int, list[bytes]]:
    """Open a folder below the home, making what is missing, 0700; links are not followed."""
    fd, made = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), []
    for index, segment in enumerate(segments):
        try:
            os.mkdir(segment, 0o700, dir_fd=fd)
            made.append(b"/".join(segments[: index + 1]))
        except FileExistsError:
            pass
        below = os.open(segment, HANDLE, dir_fd=fd)
        os.close(fd)
        fd = below
    return fd, made


def _copy(
    home: bytes, target: bytes, source: int, digests: tuple[bytes, bytes]
) -> tuple[list[bytes], bool]:
    """Copy an open file to a new one beside the target, 0600, and put it in the target's place.

    Returns what was made, and whether the target was kept: its digest is neither the new one nor
    the one that may be replaced. A target that is the new one already stays untouched.
    """
    new, old = digests
    *folders, name = target.split(b"/")
    folder, made = _descend(home, folders)
    found = b"" if old == b"always" else _digest(folder, name)
    if found and (found == new or found != old):
        os.close(folder)
        return made, found != new
    temporary = b".amux-" + os.urandom(8).hex().encode()
    fd = os.open(temporary, NEW_FILE, 0o600, dir_fd=folder)
    try:
        os.fchmod(fd, 0o600)
        while chunk := os.read(source, CHUNK):
            view = memoryview(chunk)
            while view:
                view = view[os.write(fd, view) :]
        os.fsync(fd)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(temporary, dir_fd=folder)
        raise
    finally:
        os.close(fd)
        os.close(folder)
    return [*made, target], False


def _digest(folder: int, name: bytes) -> bytes:
    """Return the digest of a file, `other` for anything else, nothing where nothing is there."""
    import hashlib  # noqa: PLC0415  # imported already, see `_import_for`

    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        return b""
    except OSError:
        return b"other"
    try:
        whole = hashlib.sha256()
        while chunk := os.read(fd, CHUNK):
            whole.update(chunk)
        return whole.hexdigest().encode()
    except OSError:
        return b"other"
    finally:
        os.close(fd)
