"""The folders and files of one run, made below its open folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from typing import TYPE_CHECKING, Final

from amux.materializer import descriptors
from amux.materializer.errors import NotPlaced
from amux.materializer.runsroot import PASSABLE
from amux.materializer.values import (
    ACL_MODE,
    EXECUTABLE_MODE,
    PRIVATE_MODE,
    WITNESS,
    ManifestEntry,
)

if TYPE_CHECKING:
    from pathlib import Path

    from amux.materializer.values import Identity, PlannedFile, RunPaths

WORK_MODE: Final = 0o700
COMMAND: Final = "amux"
COMMANDS: Final = "bin"


def check_names(files: tuple[PlannedFile, ...]) -> None:
    """Raise NotPlaced for a file whose name would be a path, or is taken."""
    seen = {COMMANDS, WITNESS}
    for file in files:
        name = file.name
        if not name or "/" in name or "\0" in name or name in {".", ".."} or name in seen:
            raise NotPlaced(f"{name!r} cannot be the name of a file of a run")
        seen.add(name)


def build(
    run: int, paths: RunPaths, files: tuple[PlannedFile, ...], identity: Identity | None
) -> tuple[ManifestEntry, ...]:
    """Make everything that is below the open folder `run`; raise NotPlaced or OSError."""
    with contextlib.ExitStack() as stack:

        def folder(parent: int, name: str) -> int:
            fd = descriptors.make_folder(parent, name, PASSABLE)
            return stack.enter_context(descriptors.closing(fd))

        config = folder(folder(run, paths.config.parent.name), paths.config.name)
        commands = folder(config, paths.commands.name)
        entries = []
        for file in files:
            if file.executable and file.name == COMMAND:
                entries.append(_make_file(commands, paths.commands, file, identity))
            else:
                entries.append(_make_file(config, paths.config, file, identity))
        _make_work(run, paths.work.name, identity)
    return tuple(entries)


def _make_work(run: int, name: str, identity: Identity | None) -> None:
    uid = os.geteuid() if identity is None else identity.uid
    gid = os.getegid() if identity is None else identity.gid
    with descriptors.closing(descriptors.make_folder(run, name, WORK_MODE)) as work:
        descriptors.set_owner(work, uid, gid, WORK_MODE)


def _make_file(
    folder: int, at: Path, file: PlannedFile, identity: Identity | None
) -> ManifestEntry:
    with descriptors.closing(descriptors.make_file(folder, file.name, file.content)) as fd:
        owner, mode = _give_access(fd, file, identity)
        found = os.fstat(fd)
    if (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) != (*owner, mode):
        raise NotPlaced(f"the filesystem of {at} does not keep owners and modes")
    return ManifestEntry(
        path=at / file.name,
        mode=mode,
        uid=owner[0],
        gid=owner[1],
        digest=hashlib.sha256(file.content).hexdigest(),
    )


def _give_access(
    fd: int, file: PlannedFile, identity: Identity | None
) -> tuple[tuple[int, int], int]:
    """Let the target read the file, and not change it; return its owner and group, and its mode."""
    service = (os.geteuid(), os.getegid())
    mode = EXECUTABLE_MODE if file.executable else PRIVATE_MODE
    descriptors.set_owner(fd, *service, mode)
    if identity is None or file.executable:
        return service, mode
    if descriptors.allow_reading(fd, identity.uid):
        return service, ACL_MODE
    target = (identity.uid, identity.gid)
    descriptors.set_owner(fd, *target, mode)
    return target, mode
