"""The folder that holds all runs: made when missing, and refused where others could reach in."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from amux.materializer import descriptors
from amux.materializer.errors import RootUnsafe

if TYPE_CHECKING:
    from pathlib import Path

    from amux.materializer.values import Identity

PASSABLE: Final = 0o711


def open_root(root: Path, identity: Identity | None, *, make: bool = True) -> int:
    """Open the runs root, made if missing, and check that only the service can write to it.

    For a target, every folder from `/` down is checked, and that the target can pass through it.
    """
    try:
        for path, fd in descriptors.walk(root, make=PASSABLE if make else None):
            last = path == root
            if identity is not None or last:
                descriptors.require_trusted(path, fd, last=last)
            if identity is not None:
                _require_passable(path, fd, identity)
            if last:
                return _checked_root(root, fd)
    except FileNotFoundError:
        raise
    except descriptors.Untrusted as error:
        raise RootUnsafe(f"runs cannot be kept in {root}: {error}") from error
    except OSError as error:
        raise RootUnsafe(f"runs cannot be kept in {root}: {error.strerror}") from error
    raise RootUnsafe(f"runs cannot be kept in {root}")


def _require_passable(path: Path, fd: int, identity: Identity) -> None:
    if not os.fstat(fd).st_mode & stat.S_IXOTH:
        raise RootUnsafe(
            f"{identity.user} cannot pass through {path}: chmod o+x it, or set AMUX_RUNS "
            "to a folder that every user can reach"
        )


def _checked_root(root: Path, fd: int) -> int:
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    if mode & 0o066:
        raise RootUnsafe(
            f"{root} has mode {mode:04o}, so that others can list the runs: chmod 0711 it"
        )
    opened = os.open(".", descriptors.FOLDER, dir_fd=fd)
    if os.fstatvfs(opened).f_flag & os.ST_NOEXEC:
        os.close(opened)
        raise RootUnsafe(
            f"{root} is on a mount with noexec, where the memory command cannot run: "
            "set AMUX_RUNS to a folder on another mount"
        )
    return opened
