"""The worker of `removal`: empty an open folder as the target that owns it.

Standard library only. Standard input carries NUL-ended fields: uid, gid, groups with commas, the
folder's descriptor. Standard output answers with `left` and the names that are left, or with
`error` and a sentence, each NUL-ended.
"""

from __future__ import annotations

import os
import sys
import time

from amux.materializer import descriptors, privileges, rmtree

SECONDS = 10.0
"""How long files are removed that the target's processes keep adding."""


def main() -> None:
    """Take on the target's identity, remove what it may, name the rest."""
    uid, gid, groups, folder, *_ = sys.stdin.buffer.read().split(b"\0")
    target, top = privileges.Ids.parse(uid, gid, groups), int(folder)
    try:
        privileges.drop(target)
        privileges.allow_proc_self()
        left = _empty(top, target.uid)
    except (privileges.NotDropped, OSError) as error:
        _answer([b"error", str(error).encode()])
    else:
        _answer([b"left", *map(os.fsencode, left)])


def _empty(top: int, uid: int) -> tuple[str, ...]:
    """Remove again while the target still owns something of what is left."""
    os.fchmod(top, 0o700)
    until = time.monotonic() + SECONDS
    while True:
        left = rmtree.remove_contents(top, frozenset({uid}))
        if not any(_try_again(top, path, uid) for path in left) or time.monotonic() > until:
            break
    return tuple(path for path in left if os.path.lexists(f"/proc/self/fd/{top}/{path}"))


def _try_again(top: int, path: str, uid: int) -> bool:
    """Say whether the path is the target's own, or gone already; a mount point is neither."""
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
    except OSError:
        return True
    try:
        mounted = descriptors.mount_of(fd) != descriptors.mount_of(top)
        return os.fstat(fd).st_uid == uid and not mounted
    finally:
        os.close(fd)


def _answer(fields: list[bytes]) -> None:
    sys.stdout.buffer.write(b"".join(field + b"\0" for field in fields))
