"""Where a Hub that is started on demand lives among the kernel's control groups.

What stops a unit, a container's exec or a CI job kills whatever is in its control group, a session
of its own or not. So such a Hub leaves the group of the launch that started it: into a scope where
a systemd manager answers, else into a group of its own where the kernel lets this account make one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.hub import cgroup

if TYPE_CHECKING:
    from collections.abc import Mapping

GROUP_PREFIX: Final = "amux-hub-"
BOOTED: Final = Path("/run/systemd/system")
SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
LEAVE: Final = "leave"
"""What a Hub is told that has to find its place by itself."""
ASK_SECONDS: Final = 5.0
_MANAGER: Final = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
_OF_A_SCOPE: Final = (*_MANAGER, "INVOCATION_ID")


class Placed(StrEnum):
    """How a Hub was started, and what it shares its end with; empty: by hand."""

    HAND = ""
    SOCKET = "socket"
    SCOPE = "scope"
    GROUP = "group"
    TOP = "top"
    SHARED = "shared"


SENTENCES: Final = {
    Placed.HAND: "by hand, or by a service manager",
    Placed.SOCKET: "by a socket unit",
    Placed.SCOPE: "on demand, in a systemd scope of its own",
    Placed.GROUP: "on demand, in a control group of its own",
    Placed.TOP: "on demand, in the top control group, as the launch that started it",
    Placed.SHARED: (
        "on demand, in the control group of the launch that started it, which cannot be left here: "
        "what ends that group ends the Hub too, and a launch that runs, or the next one, starts it "
        "again"
    ),
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a Hub lives; `group` is the folder of a control group that was made for it."""

    placed: Placed = Placed.HAND
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """The command that starts another in a scope, and the variables that it needs itself."""

    command: tuple[str, ...]
    variables: Mapping[str, str]

    def wrapped(self, program: list[str]) -> list[str]:
        """Return the command that runs `program` in a scope, without the manager's variables."""
        without = [part for name in _OF_A_SCOPE for part in ("-u", name)]
        return [*self.command, "env", *without, *program]


def placed(text: str) -> Placed:
    """Return what a holder says of its place; one of a later version counts as started by hand."""
    try:
        return Placed(text)
    except ValueError:
        return Placed.HAND


def find_manager(
    environ: Mapping[str, str], *, booted: Path = BOOTED, path: str = SYSTEM_PATH
) -> Manager | None:
    """Return the systemd manager that makes a scope for this account, None where none does.

    It is asked for a scope at once: a socket that is there need not answer.
    """
    command = shutil.which("systemd-run", path=path)
    if command is None or not booted.is_dir():
        return None
    variables = {"PATH": path}
    whose = "--system"
    if os.geteuid() != 0:
        whose = "--user"
        variables["XDG_RUNTIME_DIR"] = f"/run/user/{os.geteuid()}"
        variables |= {name: environ[name] for name in _MANAGER if name in environ}
    words = (command, whose, "--scope", "--collect", "--quiet", "--no-ask-password")
    manager = Manager(command=(*words, "--description=amux Hub", "--"), variables=variables)
    try:
        asked = subprocess.run(
            [*manager.command, "true"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=variables,
            cwd="/",
            timeout=ASK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return manager if asked.returncode == 0 else None


def leave(residence: str) -> Place:
    """Move this process into a group of its own, as high as it may.

    By device and inode of its home (`amux.hub.residence`): two homes never share one, and a home
    finds its own again.
    """
    above = cgroup.folders_above()
    if not above:
        shared = cgroup.ending_paths(cgroup.paths_of())
        return Place(Placed.SHARED if shared else Placed.TOP)
    name = GROUP_PREFIX + hashlib.sha256(residence.encode()).hexdigest()[:12]
    for parent in above:
        folder = f"{parent}/{name}"
        if _join(folder):
            _sweep(parent)
            kept = any(names for names, _ in cgroup.ending_paths(cgroup.paths_of()))
            return Place(Placed.SHARED if kept else Placed.GROUP, folder)
    return Place(Placed.SHARED)


def remove(folder: str) -> None:
    """Remove the group that was made for a Hub that has ended."""
    if os.path.basename(folder).startswith(GROUP_PREFIX):  # noqa: PTH119  # of a text, not a path
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # noqa: PTH106  # a folder of the kernel's


def _join(folder: str) -> bool:
    """Make the group, unless it is there, and move this process into it."""
    for _ in range(2):  # another Hub may sweep it before this one is in it
        try:
            os.mkdir(folder)  # noqa: PTH102  # a folder of the kernel's
        except FileExistsError:
            pass
        except OSError:
            return False
        if cgroup.write(f"{folder}/cgroup.procs", b"0"):
            return True
    remove(folder)
    return False


def _sweep(parent: str) -> None:
    """Remove what killed Hubs have left there; the kernel removes no group with a process in it."""
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):  # noqa: PTH208  # as above
            remove(f"{parent}/{name}")
