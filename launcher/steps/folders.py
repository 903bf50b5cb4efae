"""The folders of a launch by their own names: where the agent starts, and its home.

An agent asks the kernel where it is, so a folder is named as the kernel names it, without links:
what it looks up by that name (trust, conversations) is then looked up by the same one here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from amux.launcher.errors import BadRequest

if TYPE_CHECKING:
    from amux.materializer.values import Identity


def here() -> str:
    """Return the current folder; raise BadRequest where it was deleted."""
    try:
        return os.getcwd()  # noqa: PTH109  # a string is wanted
    except FileNotFoundError as error:
        message = "the current folder was deleted; name another one to start the agent in (cwd)"
        raise BadRequest(message) from error


def entered(cwd: str, identity: Identity | None) -> str:
    """Return the folder's own name, as who is to start there finds it; raise BadRequest.

    A target looks for itself: the service may be kept out of what is the target's own.
    """
    wrong, found = "", cwd
    if not os.path.isabs(cwd):  # noqa: PTH117  # a string is wanted
        wrong = "is not an absolute path"
    elif identity is not None:
        wrong, found = _as_target(cwd, identity)
    elif not os.path.isdir(cwd):  # noqa: PTH112  # same
        wrong = "is not there" if not os.path.lexists(cwd) else "is no folder"
    elif not os.access(cwd, os.X_OK):
        wrong = "cannot be entered by your account"
    else:
        found = os.path.realpath(cwd)
    if wrong:
        message = f"the folder {cwd} {wrong}; name another one to start the agent in (cwd)"
        raise BadRequest(message)
    return found


def _as_target(cwd: str, identity: Identity) -> tuple[str, str]:
    # Imported here: most launches need it not, and start sooner.
    from amux.materializer.trial import run as run_trial  # noqa: PLC0415

    trial = run_trial(("/bin/pwd", "-P"), identity=identity, environment={}, cwd=cwd)
    said = trial.stderr.decode(errors="replace").strip()
    start = f"amux: {cwd}: "
    if said.startswith(start):
        return f"cannot be entered by user {identity.user} ({said.removeprefix(start)})", cwd
    found = os.fsdecode(trial.stdout.removesuffix(b"\n"))
    return "", found if trial.status == 0 and found.startswith("/") else cwd


def plain(home: str) -> str:
    """Return a home without `..`, `//` and the like; one that has none of them stays as it is.

    Agents differ in how they write such a name, and compare it with their own.
    """
    if home.startswith("/") and home == os.path.normpath(home) and not home.startswith("//"):
        return home
    return os.path.realpath(home)
