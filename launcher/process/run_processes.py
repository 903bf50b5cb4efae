"""The processes of a run, found by its marks wherever they have gone, and ended.

A run's marker is in the environment that its processes inherit. A process that emptied its
environment still has the run's mark among its limits, see `mark`, and what descends from either
belongs to the run too. Processes are told apart by pid and start time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.hub.home import RUN_MARKER
from amux.launcher.process import cgroup
from amux.launcher.process import table as proctable
from amux.launcher.process.shim import ASK, start_time
from amux.procstat import look

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from amux.procstat import Process

MARKER: Final = RUN_MARKER
"""The variable that marks every process of a run; a marker is random, 128 bits."""
SHIM_MARKER: Final = "AMUX_SHIM"
"""The same for the run's shim."""

SHIM_GRACE: Final = 8.0
"""Seconds for a shim whose supervisor died to end its run by itself."""
SHORTEST_MARKER: Final = 16
"""Characters; a shorter one (a damaged record's) marks nothing, since others may have it too."""
RETRY: Final = 0.02
MARK_DIGITS: Final = 15
"""Hexadecimal digits of the marker that are in the mark."""
MARK_BASE: Final = 1 << 62
LIMIT: Final = b"Max realtime timeout"

__all__ = [
    "MARKER",
    "SHIM_MARKER",
    "ProcessKey",
    "alive",
    "boot_id",
    "end_left",
    "end_marked",
    "find_marked",
    "group_members",
    "kill",
    "mark",
    "start_time",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessKey:
    """One process and no other: `start` is in clock ticks since boot."""

    pid: int
    start: int


def mark(marker: str) -> int:
    """Return the run's mark among the limits: RLIMIT_RTTIME's soft value, in microseconds.

    No clock ever reaches it (140,000 years), children inherit it, and everybody may read it.
    0 where the marker is too short to mark anything.
    """
    if len(marker) < SHORTEST_MARKER:
        return 0
    try:
        return MARK_BASE | int(marker[:MARK_DIGITS], 16)
    except ValueError:
        return 0


def boot_id() -> str:
    """Return the id of the machine's current boot; start times compare within one only."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def alive(key: ProcessKey) -> bool:
    """Say whether that very process still runs; a zombie does not."""
    process = look(key.pid)
    return process is not None and process.start == key.start and process.lives


def find_marked(markers: Collection[str]) -> dict[str, list[ProcessKey]]:
    """Return the living processes of each run, descendants included, by marker.

    Reads the environments that this user may read (its own processes, or all for root), and
    everybody's limits.
    """
    return {
        marker: [ProcessKey(pid=one.pid, start=one.start) for one in found]
        for marker, found in _find(markers).items()
    }


def group_members(group: int) -> dict[int, str]:
    """Return the state of each process of a process group, by pid."""
    everybody = proctable.everybody().values()
    return {one.pid: one.state.decode() for one in everybody if one.group == group}


def end_marked(markers: Collection[str], deadline: float) -> int:
    """End every process of these runs; return how many could not be ended.

    Living shims are asked first and given SHIM_GRACE, since they know what has lost its marks.
    Gives up `deadline` seconds after the last time that there was one fewer.
    """
    asked = [_ask_shim(one, marker) for marker, found in _find(markers).items() for one in found]
    if any(asked):
        until = time.monotonic() + SHIM_GRACE
        while time.monotonic() < until and _all(markers):
            time.sleep(RETRY)
    groups = [folder for marker in markers for folder in _groups(marker)]
    for folder in groups:
        cgroup.end(folder)
    left = _end(lambda: _all(markers), deadline)
    for folder in groups:
        _remove(folder, deadline)
    return left


def end_left(marker: str, since: int, deadline: float) -> int:
    """End what has this run's marks and no guard above it; return how many could not be ended.

    `since` is when the run's guard started, in clock ticks. One look at the machine serves all
    runs that end at that time.
    """
    if not LEFT.look(marker, since):
        return 0
    return _end(lambda: _find([marker], since=since, guarded=False)[marker], deadline)


def kill(key: ProcessKey, number: int) -> bool:
    """Signal that very process; return whether it was there and could be signalled."""
    process = look(key.pid)
    return process is not None and process.start == key.start and proctable.send(process, number)


class _Look:
    """One look for what several runs have left."""

    def __init__(self) -> None:
        self.since: dict[str, int] = {}
        self.found: dict[str, list[Process]] | None = None


class _Left:
    """Looks for what ended runs have left, once for all that ask before a look begins."""

    def __init__(self) -> None:
        self._looking = threading.Lock()
        self._asking = threading.Lock()
        self._next = _Look()

    def look(self, marker: str, since: int) -> bool:
        """Say whether a look that began after this call found anything of the run."""
        with self._asking:
            mine = self._next
            mine.since[marker] = since
        with self._looking:
            if mine.found is None:
                with self._asking:
                    self._next = _Look()
                mine.found = _find(mine.since, since=min(mine.since.values()), guarded=False)
        return bool(mine.found[marker])


LEFT: Final = _Left()


def _end(find: Callable[[], list[Process]], deadline: float) -> int:
    """Kill what `find` returns until it returns nothing; return how many are left."""
    fewest, vain, until = -1, 0, 0.0
    while left := find():
        if fewest < 0 or len(left) < fewest:
            fewest, until = len(left), time.monotonic() + deadline
        if time.monotonic() > until or vain > 1:  # not ours to signal
            return len(left)
        # A session here may be the caller's own: none of its groups is the run's as a whole.
        vain = 0 if proctable.kill_all(find, lambda _: False) else vain + 1
        time.sleep(RETRY)
    return 0


def _groups(marker: str) -> list[str]:
    return cgroup.find(marker) if len(marker) >= SHORTEST_MARKER else []


def _remove(folder: str, deadline: float) -> None:
    """Remove a group that was ended, once the kernel has taken its last process out."""
    until = time.monotonic() + deadline
    while cgroup.populated(folder) and time.monotonic() < until:
        time.sleep(RETRY)
    cgroup.remove(folder)


def _all(markers: Collection[str]) -> list[Process]:
    return [one for found in _find(markers).values() for one in found]


def _find(
    markers: Collection[str], *, since: int = 0, guarded: bool = True
) -> dict[str, list[Process]]:
    """Return the processes of each run: those with a mark, and all that descend from them.

    Only a process that started at `since` or later is looked at. Without `guarded`, what lives
    below a guard of the run is left out: that one ends it.
    """
    wanted = _Wanted([marker for marker in markers if len(marker) >= SHORTEST_MARKER])
    found: dict[str, list[Process]] = {marker: [] for marker in markers}
    if not wanted.markers:
        return found
    table = proctable.everybody()
    roots: dict[str, list[int]] = {}
    guards: list[int] = []
    for one in table.values():
        if one.start < since:
            continue
        marker, shim = wanted.marker(one.pid)
        if marker:
            roots.setdefault(marker, []).append(one.pid)
        if shim:
            guards.append(one.pid)
    kept = {os.getpid()}
    if not guarded:
        kept.update(guards, (one.pid for one in proctable.below(table, guards)))
    for marker, pids in roots.items():
        family = {one.pid: one for one in proctable.below(table, pids)}
        family.update({pid: table[pid] for pid in pids if table[pid].lives})
        found[marker] = [one for one in family.values() if one.pid not in kept]
    return found


class _Wanted:
    """What marks the processes of some runs."""

    def __init__(self, markers: list[str]) -> None:
        self.markers = markers
        self._entries = {
            f"{name}={marker}".encode(): (marker, name == SHIM_MARKER)
            for marker in markers
            for name in (MARKER, SHIM_MARKER)
        }
        self._marks = {mark(marker): marker for marker in markers}

    def marker(self, pid: int) -> tuple[str, bool]:
        """Return the marker of a process, empty without one, and whether it is a guard or shim."""
        with contextlib.suppress(OSError):
            for entry in _read(f"/proc/{pid}/environ").split(b"\0"):
                if entry in self._entries:
                    return self._entries[entry]
        with contextlib.suppress(OSError, ValueError, IndexError):
            _, _, rest = _read(f"/proc/{pid}/limits").partition(LIMIT)
            return self._marks.get(int(rest.split(maxsplit=1)[0]), ""), False
        return "", False


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  # thousands of them
        return file.read()


def _ask_shim(process: Process, marker: str) -> bool:
    if _Wanted([marker]).marker(process.pid) != (marker, True):
        return False
    return proctable.send(process, ASK) and proctable.send(process, signal.SIGCONT)
