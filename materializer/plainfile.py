"""Read a regular file that the target owns in the service itself: its owner can read it anyway.

No link is followed, and no mount is entered below the target's first folder. So the only files
that are read are regular ones of the target's, in folders of its own or that everybody may pass.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.materializer import descriptors

if TYPE_CHECKING:
    from amux.materializer.values import Identity

PLAIN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NotPlain(Exception):
    """The path does not name a plain file of the target's: only the target may look there."""


def read_plain_file(path: str, identity: Identity, *, limit: int) -> bytes:
    """Return at most `limit` bytes of a plain file that the target owns, or raise NotPlain."""
    name = Path(path)
    if path.endswith("/") or not name.is_absolute() or ".." in name.parts:
        raise NotPlain(path)
    try:
        device = None
        for folder, fd in descriptors.walk(name.parent):
            device = _require_passable(fd, identity, device)
            if folder == name.parent:
                return _read(fd, name.name, identity, device, limit)
    except (OSError, ValueError) as error:
        raise NotPlain(path) from error
    raise NotPlain(path)


def _require_passable(fd: int, identity: Identity, device: int | None) -> int | None:
    """Check a folder of the path; return the device of the target's own, None above them."""
    found = os.fstat(fd)
    if found.st_uid == identity.uid:
        if not found.st_mode & stat.S_IXUSR or device not in {None, found.st_dev}:
            raise NotPlain(fd)
        return found.st_dev
    if device is not None or found.st_uid != 0 or not found.st_mode & stat.S_IXOTH:
        raise NotPlain(fd)
    return None


def _read(folder: int, name: str, identity: Identity, device: int | None, limit: int) -> bytes:
    looked = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISREG(looked.st_mode):  # looked at before: opening a device may have effects
        raise NotPlain(name)
    with os.fdopen(os.open(name, PLAIN, dir_fd=folder), "rb") as file:
        found = os.fstat(file.fileno())
        if (
            not stat.S_ISREG(found.st_mode)
            or found.st_uid != identity.uid
            or not found.st_mode & stat.S_IRUSR
            or device not in {None, found.st_dev}
        ):
            raise NotPlain(name)
        return file.read(limit)
