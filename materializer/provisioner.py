"""Make folders and files in the target's home, and read its files, as the target.

Standard library only, and little of it: each launch may wait for this. Started by `provision`
in a Python with `-I -S`. Standard input carries NUL-ended fields: uid (empty: stay who you are),
gid, groups with commas, home, limit; then pairs of what and where: `folder` and a path below
the home (made where missing), `copy-` with a descriptor, the digest of what it holds and that of
what may be replaced (`always`: anything) and such a path, `read`, `list`, `holds-` with a text in
hex, `appended-` with a place and a digest, `newer-` with a time, and any path or pattern. Standard
output answers with frames, each a word and a size before its bytes: `made PATH` and `kept PATH`,
`read CONTENT` or `none` for each path that was to be read, listed or searched, and last
`error SENTENCE` or `done`.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PASSAGE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
CHUNK = 65_536
UMASK = 0o077
LOOKS = (b"read", b"list", b"holds-", b"appended-", b"newer-")


class _Target:
    """What `become` needs of an identity."""

    def __init__(self, uid: bytes, gid: bytes, groups: bytes) -> None:
        self.uid = int(uid)
        self.gid = int(gid)
        self.groups = [int(group) for group in groups.split(b",") if group]


def main() -> None:
    """Become the target, do what is ordered, answer."""
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120  # cheap
    import become  # type: ignore[import-not-found]  # noqa: PLC0415  # beside us, not in a package
    import reading  # type: ignore[import-not-found]  # noqa: PLC0415  # same

    uid, gid, groups, home, limit, *wishes = sys.stdin.buffer.read().split(b"\0")[:-1]
    if any(what.startswith((b"appended-", b"newer-", b"copy-")) for what in wishes[::2]):
        # What is imported for these; the target may not be able to read our Python.
        import fnmatch  # noqa: F401, PLC0415
        import hashlib  # noqa: F401, PLC0415
    at = b"."
    try:
        if uid:
            become.become(_Target(uid, gid, groups))
        os.umask(UMASK)
        for what, at in zip(wishes[::2], wishes[1::2], strict=True):
            if what.startswith(LOOKS):
                found = _look(reading, what, at, int(limit))
                _answer(b"none" if found is None else b"read", found or b"")
                continue
            for word, path in _make(home, what, at):
                _answer(word, path)
    except become.NotBecome as error:
        _answer(b"error", str(error).encode())
    except NotADirectoryError:
        why = b": a link or a file is in the way; folders reached through links are not used"
        _answer(b"error", at + why)
    except OSError as error:
        _answer(b"error", at + f": {error.strerror}".encode())
    else:
        _answer(b"done", b"")


def _answer(word: bytes, content: bytes) -> None:
    sys.stdout.buffer.write(b"%s %d\n%s" % (word, len(content), content))


def _look(reading: ModuleType, what: bytes, path: bytes, limit: int) -> bytes | None:
    found: bytes | None = None
    kind, _, rest = what.partition(b"-")
    if kind == b"read":
        found = reading.content(path, limit)
    elif kind == b"list":
        found = reading.listing(path)
    elif kind == b"appended":
        since, _, digest = rest.partition(b"-")
        found = reading.appended(path, int(since), digest, limit)
    elif kind == b"newer":
        found = b"\0".join(reading.matching(path, int(rest)))
    elif reading.holds(path, bytes.fromhex(rest.decode())):
        found = b""
    return found


def _make(home: bytes, what: bytes, path: bytes) -> list[tuple[bytes, bytes]]:
    """Make a folder or a copy; return the frames that say so."""
    if what == b"folder":
        return [(b"made", one) for one in _folder(home, path)]
    _, source, new, old = what.split(b"-")
    made, kept = _place(home, path, int(source), (new, old))
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
        below = os.open(segment, PASSAGE, dir_fd=fd)
        os.close(fd)
        fd = below
    return fd, made


def _place(
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
    """Return the digest of what is there, `other` for what is no file; empty where nothing is."""
    import hashlib  # noqa: PLC0415  # imported already, see `main`

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


if __name__ == "__main__":
    main()
