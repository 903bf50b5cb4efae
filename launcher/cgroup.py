"""A run's own control group, where the kernel lets this account make one.

Whatever the agent starts is born into it, so `cgroup.kill` ends all of it at once, whoever forks
meanwhile. A service manager or a container delegates a part of cgroup v2, and root has all of it;
elsewhere there is none, and runs are ended without. Standard library only: the shim imports it.
"""

from __future__ import annotations

import os

PREFIX = "amux-"
"""A group's name is this, the run's marker, a dot, and a part of its own."""


def own_folder() -> str:
    """Return the folder of this process's own group in cgroup v2; empty where there is none."""
    path = _own_path()
    if path:
        for root, point in _mounts():
            if path == root or path.startswith(root.rstrip("/") + "/"):
                return os.path.normpath(point + "/" + path[len(root.rstrip("/")) :])
    return ""


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
    return _write(folder + "/cgroup.procs", b"0")


def end(folder: str) -> bool:
    """Kill every process of the group and of those below it; say whether that was possible."""
    return _write(folder + "/cgroup.kill", b"1")


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
    for _, point in _mounts():
        for path, folders, _ in os.walk(point):
            found += [f"{path}/{name}" for name in folders if name.startswith(begin)]
    return found


def _write(path: str, data: bytes) -> bool:
    try:
        with open(path, "wb", buffering=0) as file:  # noqa: PTH123  # pathlib is too heavy here
            file.write(data)
    except OSError:
        return False
    return True


def _own_path() -> str:
    """Return the path of this process's group within cgroup v2, which has the number 0."""
    try:
        with open("/proc/self/cgroup", "rb") as file:  # noqa: PTH123  # pathlib is too heavy here
            for line in file:
                if line.startswith(b"0::/"):
                    return os.fsdecode(line[3:].rstrip(b"\n"))
    except OSError:
        pass
    return ""


def _mounts() -> list[tuple[str, str]]:
    """Return root and mount point of each cgroup v2 file system that is mounted here."""
    found = []
    try:
        with open("/proc/self/mountinfo", "rb") as file:  # noqa: PTH123  # pathlib is too heavy
            for line in file:
                place, _, kind = line.partition(b" - ")
                if kind.startswith(b"cgroup2 "):
                    root, point = place.split(b" ")[3:5]
                    found.append((_unescaped(root), _unescaped(point)))
    except OSError:
        pass
    return found


def _unescaped(field: bytes) -> str:
    """Undo the kernel's octal escapes of white space and backslashes."""
    for text, character in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n")):
        field = field.replace(text, character)
    return os.fsdecode(field.replace(b"\\134", b"\\"))
