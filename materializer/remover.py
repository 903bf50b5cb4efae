"""Empty an open folder as the target that owns it.

Standard library only. Started by `removal` in a Python with `-I -S`. Standard input carries
NUL-ended fields: uid, gid, groups with commas, the folder's descriptor. Standard output answers
with the names that are left, each NUL-ended, after `left`; or with `error` and a sentence.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

SECONDS = 10.0
"""For processes of the target's that go on adding to what is removed: each pass may meet them."""


class _Target:
    """What `become` needs of an identity."""

    def __init__(self, uid: bytes, gid: bytes, groups: bytes) -> None:
        self.uid = int(uid)
        self.gid = int(gid)
        self.groups = [int(group) for group in groups.split(b",") if group]


def main() -> None:
    """Become the target, remove what it may, name the rest."""
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120  # cheap
    import become  # type: ignore[import-not-found]  # noqa: PLC0415  # beside us, not in a package
    import descriptors  # type: ignore[import-not-found]  # noqa: PLC0415  # same

    uid, gid, groups, folder, *_ = sys.stdin.buffer.read().split(b"\0")
    top = int(folder)
    try:
        become.become(_Target(uid, gid, groups))
        become.show()
        left = _clear(descriptors, top, int(uid))
    except (become.NotBecome, OSError) as error:
        _answer([b"error", str(error).encode()])
    else:
        _answer([b"left", *map(os.fsencode, left)])


def _clear(descriptors: ModuleType, top: int, uid: int) -> tuple[str, ...]:
    """Remove again as long as what is left is the target's own: its processes may add to it."""
    os.fchmod(top, 0o700)
    left: tuple[str, ...] = ()
    until = time.monotonic() + SECONDS
    while True:
        left = descriptors.clear(top, frozenset({uid}))
        if not any(_own(descriptors, top, path, uid) for path in left) or time.monotonic() > until:
            break
    return tuple(path for path in left if os.path.lexists(f"/proc/self/fd/{top}/{path}"))


def _own(descriptors: ModuleType, top: int, path: str, uid: int) -> bool:
    """Say whether the target's own rubbish lies there, or nothing any more; a mount is none."""
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


if __name__ == "__main__":
    main()
