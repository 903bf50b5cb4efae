"""Control groups of the kernel, as this process sees them. Standard library only: the shim asks."""

from __future__ import annotations

import os

# Managers that know version 1 alone end what is in one of these; the others only count and limit.
_ENDING = frozenset({"name=systemd", "pids", "freezer", "devices"})


def own_folder() -> str:
    """Return the folder of this process's own group in cgroup v2; empty where there is none."""
    return _place()[0]


def folders_above() -> list[str]:
    """Return the folders of the groups above this process's own, from the top that is seen here."""
    own, top = _place()
    if not own or own == top:
        return []
    found = []
    while own != top:
        own = os.path.dirname(own)  # noqa: PTH120  # pathlib is too heavy here
        found.append(own)
    return found[::-1]


def paths_of(pid: int | str = "self") -> dict[str, str]:
    """Return a process's path in each hierarchy by its controllers' names; v2 has no name."""
    found = {}
    try:
        with open(f"/proc/{pid}/cgroup", "rb") as file:  # noqa: PTH123  # pathlib is too heavy here
            for line in file:
                _, names, path = line.rstrip(b"\n").split(b":", 2)
                found[os.fsdecode(names)] = os.fsdecode(path)
    except (OSError, ValueError):
        pass
    return found


def ending_paths(paths: dict[str, str]) -> set[tuple[str, str]]:
    """Return those of a process's groups, but the highest seen here, with which it could be ended.

    A container's own group ends with the container, whatever is done in it.
    """
    tops = _tops()
    return {
        (names, path)
        for names, path in paths.items()
        if path != "/"
        and (not names or _ENDING.intersection(names.split(",")))
        and not any(path == root and options.issuperset(names.split(",")) for root, options in tops)
    }


def mounts() -> list[tuple[str, str]]:
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


def write(path: str, data: bytes) -> bool:
    """Write to a file of the kernel's; say whether it took that."""
    try:
        with open(path, "wb", buffering=0) as file:  # noqa: PTH123  # pathlib is too heavy here
            file.write(data)
    except OSError:
        return False
    return True


def _tops() -> list[tuple[str, set[str]]]:
    """Return the highest group of each hierarchy that is mounted here, and its controllers."""
    found = []
    try:
        with open("/proc/self/mountinfo", "rb") as file:  # noqa: PTH123  # pathlib is too heavy
            for line in file:
                place, _, kind = line.rstrip(b"\n").partition(b" - ")
                name, _, options = os.fsdecode(kind).split(" ", 2)
                if name in {"cgroup", "cgroup2"}:
                    words = {""} if name == "cgroup2" else set(options.split(","))
                    found.append((_unescaped(place.split(b" ")[3]), words))
    except (OSError, ValueError):
        pass
    return found


def _place() -> tuple[str, str]:
    """Return the folder of this process's own group and that of the highest one seen here."""
    path = paths_of().get("", "")
    if path and not path.startswith("/.."):  # above what is seen from here
        for root, point in mounts():
            if path == root or path.startswith(root.rstrip("/") + "/"):
                own = os.path.normpath(point + "/" + path[len(root.rstrip("/")) :])
                return own, os.path.normpath(point)
    return "", ""


def _unescaped(field: bytes) -> str:
    """Undo the kernel's octal escapes of white space and backslashes."""
    for text, character in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n")):
        field = field.replace(text, character)
    return os.fsdecode(field.replace(b"\\134", b"\\"))
