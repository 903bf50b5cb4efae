"""Run folders: one per launch, built complete before anybody can see it, removed when it ends.

    <root>                         0711, the service's
    <root>/<32 hex digits>         0711, the service's; the name is the only way in
      agent-config/memory/         0711, the service's
        bin/amux                   0555, the service's: the only file of its folder, for PATH
        <connection, provider's>   0400, the target's
        witness.sock               0600, the target's (amux.materializer.witness)
      inquiry.sock                 0600, the service's, for some agents (evidence.query_socket)
      work/                        0700, the target's: the only folder that it can write to

The service locks each folder that it makes until it removes it: so `sweep` can tell a run whose
process was killed from one that lives. The target can neither list nor open these folders, and
so cannot take that lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.materializer import descriptors, removal
from amux.materializer.errors import NotPlaced, RootUnsafe, RunInUse
from amux.materializer.runfiles import COMMANDS, build, check_names
from amux.materializer.runsroot import PASSABLE, open_root
from amux.materializer.values import Manifest, RunPaths

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from amux.materializer.values import Identity, PlannedFile

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
    warn: Callable[[str], object] = removal.ignore,
) -> Manifest:
    """Put the files in place for the target, or for the caller itself where identity is None.

    The run appears complete or not at all. What a killed process left in its place is removed,
    with `warn` as in `remove`. Raises RootUnsafe, RunInUse or NotPlaced.
    """
    check_names(files)
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
            entries = build(run, paths, files, identity)
            _publish(root, hidden, paths, warn)
        except (OSError, NotPlaced, RunInUse) as error:
            removal.remove_run(root, hidden, at=paths.run.parent, warn=removal.ignore)
            os.close(run)
            if isinstance(error, OSError):
                raise NotPlaced(f"{paths.run} cannot be filled: {error.strerror}") from error
            raise
    _held[paths.run] = run
    return Manifest(paths=paths, entries=entries)


def remove(paths: RunPaths, warn: Callable[[str], object] = removal.ignore) -> bool:
    """Remove a run; return whether nothing of it is left. A missing run is removed already.

    What its target may not remove is moved aside, and `warn` called with a sentence about it.
    """
    held = _held.pop(paths.run, None)
    try:
        root = open_root(paths.run.parent, None, make=False)
    except FileNotFoundError:
        root = None
    try:
        return root is None or _remove(root, paths.run, warn)
    finally:
        if root is not None:
            os.close(root)
        if held is not None:
            os.close(held)


def sweep(
    root: Path,
    live: Collection[Path] = (),
    warn: Callable[[Path, str], object] = lambda *_: None,
) -> tuple[Path, ...]:
    """Remove what killed processes left below `root`, except the runs in `live`.

    A run whose process lives is locked, and left alone. Returns the runs removed. `warn` is called
    with a run and a sentence where something was moved aside, as in `remove`.
    """
    real = _real(root)
    kept = {path.name for path in live}
    try:
        fd = open_root(real, None, make=False)
    except FileNotFoundError:
        return ()
    with descriptors.closing(fd):
        names = [name for name in descriptors.entries(fd) if _ANY.fullmatch(name)]
        found = [real / name for name in names if name not in kept]
        return tuple(run for run in found if _sweep_one(fd, run, functools.partial(warn, run)))


def _real(root: Path) -> Path:
    return Path(os.path.realpath(root))


def _paths(run: Path) -> RunPaths:
    config = run / "agent-config" / "memory"
    return RunPaths(run=run, config=config, commands=config / COMMANDS, work=run / "work")


def _publish(root: int, hidden: str, paths: RunPaths, warn: Callable[[str], object]) -> None:
    """Give the built run its name, in place of what a killed process may have left there."""
    with _locked(root):
        dead = _claim_abandoned(root, paths.run.name)
        os.rename(hidden, paths.run.name, src_dir_fd=root, dst_dir_fd=root)
    if dead is not None:
        name, lock = dead
        with descriptors.closing(lock):
            removal.remove_run(root, name, at=paths.run.parent, warn=warn)


def _claim_abandoned(root: int, name: str) -> tuple[str, int] | None:
    """Rename an abandoned run and lock it; None if it does not exist. Needs the root's lock."""
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


def _sweep_one(root: int, run: Path, warn: Callable[[str], object]) -> bool:
    """Remove a run that no process holds; return whether it is gone."""
    try:
        with _locked(root):
            dead = _claim_abandoned(root, run.name)
    except (RunInUse, NotADirectoryError):
        return False
    if dead is None:
        return False
    with descriptors.closing(dead[1]):
        return removal.remove_run(root, dead[0], at=run.parent, warn=warn)


def _remove(root: int, run: Path, warn: Callable[[str], object]) -> bool:
    dead = f".dead-{secrets.token_hex(NAME_BYTES)}"
    try:
        os.rename(run.name, dead, src_dir_fd=root, dst_dir_fd=root)
    except FileNotFoundError:
        return True
    return removal.remove_run(root, dead, at=run.parent, warn=warn)


@contextlib.contextmanager
def _locked(root: int) -> Iterator[None]:
    # A descriptor of its own: threads that share one would share its lock.
    with descriptors.closing(os.open(".", descriptors.FOLDER, dir_fd=root)) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
