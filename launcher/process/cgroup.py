"""A run's own control group, where the kernel lets this account make one.

Whatever the agent starts is born into it, so `cgroup.kill` ends all of it at once, whoever forks
meanwhile. A service manager or a container delegates a part of cgroup v2, and root has all of it;
elsewhere there is none, and runs are ended without. Standard library only: the shim imports it.
"""

from __future__ import annotations

import os

from amux.hub.cgroup import mounts, own_folder, write

PREFIX = "amux-"
"""A group's name is this, the run's marker, a dot, and a part of its own."""


def make(name: str) -> str:
    """Make a group below this process's own; return its folder, empty where that can't be."""
    parent = own_folder()
    if not parent:
        return ""
    folder = f"{parent}/{PREFIX}{name}"
    try:
        os.mkdir(folder)  # noqa: PTH102  # pathlib is too heavy here
    except OSError:
        return ""
    if os.access(folder + "/cgroup.kill", os.W_OK):
        return folder
    remove(folder)  # a kernel before 5.14
    return ""


def join(folder: str) -> bool:
    """Move this process into the group; say whether the kernel let it."""
    return write(folder + "/cgroup.procs", b"0")


def end(folder: str) -> bool:
    """Kill every process of the group and of those below it; say whether that was possible."""
    return write(folder + "/cgroup.kill", b"1")


def populated(folder: str) -> bool:
    """Say whether a process lives in the group or below it."""
    try:
        with open(folder + "/cgroup.events", "rb") as file:  # noqa: PTH123  # pathlib is too heavy
            return b"populated 1" in file.read()
    except OSError:
        return False


def remove(folder: str) -> None:
    """Remove an empty group and those below it."""
    for path, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(path)  # noqa: PTH106  # pathlib is too heavy here
        except OSError:
            return  # something lives in it still, or it is gone


def find(marker: str) -> list[str]:
    """Return the folders of a run's groups, wherever its supervisor had made them."""
    begin = f"{PREFIX}{marker}."
    found = []
    for _, point in mounts():
        for path, folders, _ in os.walk(point):
            found += [f"{path}/{name}" for name in folders if name.startswith(begin)]
    return found
