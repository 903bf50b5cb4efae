"""Remove a run: what the service made as the service, what is in `work/` as the target.

A target can move a folder into its `work/` that it could never empty: another user's, root's.
If the service removed that, it would delete for the target what the target may not. So a worker
that is the target removes first. What is left then belongs to others: it is never deleted, but
moved aside with its owners and modes, and reported.
"""

from __future__ import annotations

import os
import pwd
import secrets
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from amux.materializer import descriptors, rmtree, worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WORK: Final = "work"
CONFIG: Final = "agent-config"
DEADLINE: Final = 60.0
"""Seconds for the worker; what it has not removed by then waits for the next start."""
NAMED: Final = 5
"""How many of the paths that are left the warning names."""


class _Unfinished(Exception):
    """The target's own files could not all be removed yet."""


def ignore(warning: str) -> None:
    """Drop the warning."""
    del warning


def remove_run(root: int, name: str, *, at: Path, warn: Callable[[str], object]) -> bool:
    """Remove the run `name` of the open runs root, whose path is `at`; return whether it is gone.

    The caller must hold the only claim on that name. Once the service's own files are removed,
    the folder is given to the target: after a crash its owner says who empties it. `warn` is
    called with a sentence about what is left.
    """
    try:
        run = os.open(name, descriptors.FOLDER, dir_fd=root)
    except OSError:
        return False
    with descriptors.closing(run):
        try:
            if os.fstat(run).st_uid == os.geteuid():
                _give_to_target(run)
            left = _empty(run)
        except (OSError, _Unfinished, subprocess.TimeoutExpired):
            warn(f"{at / name} could not be removed now; amux tries again at its next start")
            return False
        if left:
            warn(_move_aside(root, run, name, at, left))
            return False
    try:
        os.rmdir(name, dir_fd=root)
    except OSError:
        return False
    return True


def _give_to_target(run: int) -> None:
    """Remove what is the service's own, and give the rest to the owner of `work/`."""
    os.fchmod(run, 0o700)
    rmtree.remove(run, CONFIG, frozenset({os.geteuid()}))
    try:
        found = os.stat(WORK, dir_fd=run, follow_symlinks=False)
    except FileNotFoundError:
        return
    with suppress(OSError):  # usually it is empty
        os.rmdir(WORK, dir_fd=run)
        return
    if found.st_uid != os.geteuid():
        descriptors.set_owner(run, found.st_uid, found.st_gid, 0o700)


def _empty(run: int) -> tuple[str, ...]:
    """Empty the folder as its owner; return the paths in it that this owner may not remove."""
    found = os.fstat(run)
    if found.st_uid == os.geteuid():
        return rmtree.remove_contents(run, frozenset({found.st_uid}))
    fields = (str(found.st_uid), *_groups(found), str(run))
    answer = worker.run("removalworker", fields, passed=(run,), deadline=DEADLINE)
    word, *left = answer.split(b"\0")[:-1] or [b""]
    if word != b"left":
        raise _Unfinished
    return tuple(map(os.fsdecode, left))


def _groups(found: os.stat_result) -> tuple[str, str]:
    """Return the owner's group and all its groups; those of the folder for a removed account."""
    try:
        account = pwd.getpwuid(found.st_uid)
    except KeyError:
        return str(found.st_gid), str(found.st_gid)
    groups = os.getgrouplist(account.pw_name, account.pw_gid)
    return str(account.pw_gid), ",".join(map(str, groups))


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _move_aside(root: int, run: int, name: str, at: Path, left: tuple[str, ...]) -> str:
    """Give the run a name that no sweep removes; return the sentence about what is left."""
    user = _user(os.fstat(run).st_uid)
    aside = f".left-{secrets.token_hex(16)}"
    with suppress(OSError):
        descriptors.set_owner(run, os.geteuid(), os.getegid(), 0o700)
        os.rename(name, aside, src_dir_fd=root, dst_dir_fd=root)
        name = aside
    shown = ", ".join(repr(entry) for entry in left[:NAMED])
    more = f" and {len(left) - NAMED} more" if len(left) > NAMED else ""
    return (
        f"the run's folder held what {user} may not remove: {shown}{more}; it was moved to "
        f"{at / name} with its owners and modes: look whose it is, then move it back or remove it"
    )
