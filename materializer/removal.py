"""Take a run apart: what the service made as the service, what lies in `work/` as the target.

A target can move a folder into its `work/` that it could never empty: somebody else's, root's.
Whoever removes with more rights than the target deletes for it what it could not. So a child
that is the target removes first. What is left then belongs to others: it is never deleted, but
moved aside with its owners and modes, and told.
"""

from __future__ import annotations

import os
import pwd
import secrets
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.materializer import descriptors

if TYPE_CHECKING:
    from collections.abc import Callable

WORK: Final = "work"
CONFIG: Final = "agent-config"
DEADLINE: Final = 60.0
"""Seconds that a target's own files are removed at once; the rest waits for the next start."""
NAMED: Final = 5

_REMOVER: Final = Path(__file__).with_name("remover.py")


class _Unfinished(Exception):
    """The target's own files could not all be removed yet."""


def nobody(sentence: str) -> None:
    """Hear what nobody else wants to."""
    del sentence


def dismantle(root: int, name: str, *, at: Path, told: Callable[[str], object]) -> bool:
    """Remove the run `name` of the open runs root, which lies `at`; say whether nothing is left.

    Nobody may hold that name but the caller. Without the service's own files the folder is given
    to the target: its owner says, also after a crash, who empties it. `told` hears a sentence
    about what is left.
    """
    try:
        run = os.open(name, descriptors.FOLDER, dir_fd=root)
    except OSError:
        return False
    with descriptors.closing(run):
        try:
            if os.fstat(run).st_uid == os.geteuid():
                _hand_over(run)
            left = _emptied(run)
        except (OSError, _Unfinished, subprocess.TimeoutExpired):
            told(f"{at / name} could not be removed now; amux tries again at its next start")
            return False
        if left:
            told(_set_apart(root, run, name, at, left))
            return False
    try:
        os.rmdir(name, dir_fd=root)
    except OSError:
        return False
    return True


def _hand_over(run: int) -> None:
    """Remove what is the service's own, and give the rest to the owner of `work/`."""
    os.fchmod(run, 0o700)
    descriptors.empty(run, CONFIG, frozenset({os.geteuid()}))
    try:
        found = os.stat(WORK, dir_fd=run, follow_symlinks=False)
    except FileNotFoundError:
        return
    with suppress(OSError):  # the usual end: nothing was left there
        os.rmdir(WORK, dir_fd=run)
        return
    if found.st_uid != os.geteuid():
        descriptors.own(run, found.st_uid, found.st_gid, 0o700)


def _emptied(run: int) -> tuple[str, ...]:
    """Empty the folder as its owner; return the paths in it that this owner may not remove."""
    found = os.fstat(run)
    if found.st_uid == os.geteuid():
        return descriptors.clear(run, frozenset({found.st_uid}))
    done = subprocess.run(
        (sys.executable, "-I", "-S", str(_REMOVER)),
        input=b"".join(
            field.encode() + b"\0" for field in (str(found.st_uid), *_groups(found), str(run))
        ),
        capture_output=True,
        pass_fds=(run,),
        cwd="/",
        env={},
        start_new_session=True,
        timeout=DEADLINE,
        check=False,
    )
    word, *left = done.stdout.split(b"\0")[:-1] or [b""]
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


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _set_apart(root: int, run: int, name: str, at: Path, left: tuple[str, ...]) -> str:
    """Give what is left a name that no sweep touches; return the sentence about it."""
    user = _name(os.fstat(run).st_uid)
    aside = f".left-{secrets.token_hex(16)}"
    with suppress(OSError):
        descriptors.own(run, os.geteuid(), os.getegid(), 0o700)
        os.rename(name, aside, src_dir_fd=root, dst_dir_fd=root)
        name = aside
    shown = ", ".join(repr(entry) for entry in left[:NAMED])
    more = f" and {len(left) - NAMED} more" if len(left) > NAMED else ""
    return (
        f"the run's folder held what {user} may not remove: {shown}{more}; it was moved aside to "
        f"{at / name} as it is; look whose it is, then move it back or remove it"
    )
