"""Run folders: one per launch, built complete before anybody can see it, removed when it ends.

    <root>                         0711, the service's
    <root>/<32 hex digits>         0711, the service's; the name is the only way in
      agent-config/memory/         0711, the service's
        bin/amux                   0555, the service's: the only file of its folder, for PATH
        <connection, provider's>   0400, the target's
        witness.sock               0600, the target's (amux.materializer.witness)
      inquiry.sock                 0600, the service's, for some agents (evidence.query_socket)
      work/                        0700, the target's: the only folder that it can write to

The service holds a lock on each folder that it made until it removes it, so that `sweep` can
tell a run whose process was killed from one that lives. The target can neither list nor open
these folders, hence not take such a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import re
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.materializer import descriptors, removal
from amux.materializer.errors import NotPlaced, RootUnsafe, RunInUse
from amux.materializer.runsroot import PASSABLE, open_root
from amux.materializer.values import (
    EXECUTABLE_MODE,
    LENT_MODE,
    PRIVATE_MODE,
    WITNESS,
    Identity,
    Manifest,
    ManifestEntry,
    PlannedFile,
    RunPaths,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

WORK_MODE: Final = 0o700
COMMAND: Final = "amux"
COMMANDS: Final = "bin"
NAME_BYTES: Final = 16

_RUN: Final = re.compile(r"[0-9a-f]{32}")
_ANY: Final = re.compile(r"(\.(new|dead)-)?[0-9a-f]{32}")
_held: dict[Path, int] = {}


def allocate(root: Path) -> RunPaths:
    """Name a new run below `root`; nothing is made."""
    return _paths(_real(root) / secrets.token_hex(NAME_BYTES))


def reopen(run: Path) -> RunPaths:
    """Return the paths of a run that a session had before; nothing is made."""
    if not run.is_absolute() or not _RUN.fullmatch(run.name):
        raise RootUnsafe(f"{run} is not the folder of a run")
    return _paths(_real(run.parent) / run.name)


def apply(
    paths: RunPaths,
    files: tuple[PlannedFile, ...],
    identity: Identity | None,
    told: Callable[[str], object] = removal.nobody,
) -> Manifest:
    """Put the files in place for the target, or for the caller itself where identity is None.

    The run appears complete or not at all. `told` is that of `remove`, for what a killed process
    left in its place. Raises RootUnsafe, RunInUse or NotPlaced.
    """
    _check_names(files)
    root = open_root(paths.run.parent, identity)
    with descriptors.closing(root):
        hidden = f".new-{secrets.token_hex(NAME_BYTES)}"
        try:
            with _locked(root):
                run = descriptors.make_folder(root, hidden, PASSABLE)
                fcntl.flock(run, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise NotPlaced(f"{paths.run} cannot be made: {error.strerror}") from error
        try:
            entries = _build(run, paths, files, identity)
            _publish(root, hidden, paths, told)
        except (OSError, NotPlaced, RunInUse) as error:
            removal.dismantle(root, hidden, at=paths.run.parent, told=removal.nobody)
            os.close(run)
            if isinstance(error, OSError):
                raise NotPlaced(f"{paths.run} cannot be filled: {error.strerror}") from error
            raise
    _held[paths.run] = run
    return Manifest(paths=paths, entries=entries)


def remove(paths: RunPaths, told: Callable[[str], object] = removal.nobody) -> bool:
    """Remove a run; return whether nothing of it is left. A missing run is removed already.

    `told` hears a sentence about what its target may not remove, which is moved aside.
    """
    held = _held.pop(paths.run, None)
    try:
        root = open_root(paths.run.parent, None, make=False)
    except FileNotFoundError:
        root = None
    try:
        return root is None or _remove(root, paths.run, told)
    finally:
        if root is not None:
            os.close(root)
        if held is not None:
            os.close(held)


def sweep(
    root: Path,
    live: Collection[Path] = (),
    told: Callable[[Path, str], object] = lambda *_: None,
) -> tuple[Path, ...]:
    """Remove what killed processes left below `root`, except the runs in `live`.

    A run whose process lives holds its lock and is left alone. Returns the runs removed. `told`
    hears of a run and a sentence about what its target may not remove, which is moved aside.
    """
    real = _real(root)
    kept = {path.name for path in live}
    try:
        fd = open_root(real, None, make=False)
    except FileNotFoundError:
        return ()
    with descriptors.closing(fd):
        names = [name for name in descriptors.names(fd) if _ANY.fullmatch(name)]
        found = [real / name for name in names if name not in kept]
        return tuple(run for run in found if _abandoned(fd, run, functools.partial(told, run)))


def _real(root: Path) -> Path:
    return Path(os.path.realpath(root))


def _paths(run: Path) -> RunPaths:
    config = run / "agent-config" / "memory"
    return RunPaths(run=run, config=config, commands=config / COMMANDS, work=run / "work")


def _check_names(files: tuple[PlannedFile, ...]) -> None:
    seen = {COMMANDS, WITNESS}
    for file in files:
        name = file.name
        if not name or "/" in name or "\0" in name or name in {".", ".."} or name in seen:
            raise NotPlaced(f"{name!r} cannot be the name of a file of a run")
        seen.add(name)


def _build(
    run: int, paths: RunPaths, files: tuple[PlannedFile, ...], identity: Identity | None
) -> tuple[ManifestEntry, ...]:
    uid = os.geteuid() if identity is None else identity.uid
    gid = os.getegid() if identity is None else identity.gid
    entries = []
    with contextlib.ExitStack() as stack:

        def folder(parent: int, name: str) -> int:
            fd = descriptors.make_folder(parent, name, PASSABLE)
            return stack.enter_context(descriptors.closing(fd))

        config = folder(folder(run, paths.config.parent.name), paths.config.name)
        commands = folder(config, paths.commands.name)
        for file in files:
            is_command = file.executable and file.name == COMMAND
            fd = descriptors.make_file(commands if is_command else config, file.name, file.content)
            with descriptors.closing(fd):
                found = _hand_over(fd, file, identity)
            if found is None:
                raise NotPlaced(f"the filesystem of {paths.run} does not keep owners and modes")
            entries.append(
                ManifestEntry(
                    path=(paths.commands if is_command else paths.config) / file.name,
                    mode=stat.S_IMODE(found.st_mode),
                    uid=found.st_uid,
                    gid=found.st_gid,
                    digest=hashlib.sha256(file.content).hexdigest(),
                )
            )
        work = descriptors.make_folder(run, paths.work.name, WORK_MODE)
        with descriptors.closing(work):
            descriptors.own(work, uid, gid, WORK_MODE)
    return tuple(entries)


def _hand_over(fd: int, file: PlannedFile, identity: Identity | None) -> os.stat_result | None:
    """Give a file its final mode and owner; None where the file system does not keep them.

    The target reads what is its own to read, and changes nothing of it.
    """
    owner, mode = (os.geteuid(), os.getegid()), PRIVATE_MODE
    if file.executable:
        mode = EXECUTABLE_MODE
    descriptors.own(fd, *owner, mode)
    if identity is not None and not file.executable:
        if descriptors.lend(fd, identity.uid):
            mode = LENT_MODE
        else:
            owner = (identity.uid, identity.gid)
            descriptors.own(fd, *owner, mode)
    found = os.fstat(fd)
    kept = (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (*owner, mode)
    return found if kept else None


def _publish(root: int, hidden: str, paths: RunPaths, told: Callable[[str], object]) -> None:
    """Give the built run its name, in place of what a killed process may have left there."""
    with _locked(root):
        dead = _set_aside(root, paths.run.name)
        os.rename(hidden, paths.run.name, src_dir_fd=root, dst_dir_fd=root)
    if dead is not None:
        name, lock = dead
        with descriptors.closing(lock):
            removal.dismantle(root, name, at=paths.run.parent, told=told)


def _set_aside(root: int, name: str) -> tuple[str, int] | None:
    """Rename an abandoned folder and lock it; None if there is none. Needs the root's lock."""
    try:
        fd = os.open(name, descriptors.FOLDER, dir_fd=root)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        dead = f".dead-{secrets.token_hex(NAME_BYTES)}"
        os.rename(name, dead, src_dir_fd=root, dst_dir_fd=root)
    except FileNotFoundError:  # removed by its owner since it was opened
        os.close(fd)
        return None
    except BlockingIOError as error:
        os.close(fd)
        raise RunInUse(f"the run {name} is held by another process") from error
    except OSError:
        os.close(fd)
        raise
    return dead, fd


def _abandoned(root: int, run: Path, told: Callable[[str], object]) -> bool:
    """Remove a folder that nobody holds; say whether it is gone."""
    try:
        with _locked(root):
            dead = _set_aside(root, run.name)
    except (RunInUse, NotADirectoryError):
        return False
    if dead is None:
        return False
    with descriptors.closing(dead[1]):
        return removal.dismantle(root, dead[0], at=run.parent, told=told)


def _remove(root: int, run: Path, told: Callable[[str], object]) -> bool:
    dead = f".dead-{secrets.token_hex(NAME_BYTES)}"
    try:
        os.rename(run.name, dead, src_dir_fd=root, dst_dir_fd=root)
    except FileNotFoundError:
        return True
    return removal.dismantle(root, dead, at=run.parent, told=told)


@contextlib.contextmanager
def _locked(root: int) -> Iterator[None]:
    # A descriptor of its own: threads that share one would share its lock.
    with descriptors.closing(os.open(".", descriptors.FOLDER, dir_fd=root)) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
