"""Processes told apart by pid and start time, and found again by the marker of their run.

The kernel reuses pids, so nothing here signals a bare number: a pidfd is opened first and what
made us choose the process is read again through it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hub.home import RUN_MARKER
from launcher.shim import ASK, start_time

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

MARKER: Final = RUN_MARKER
"""The variable that marks every process of a run; a marker is random, 128 bits."""
SHIM_MARKER: Final = "AMUX_SHIM"
"""The same for the run's shim."""

SHIM_GRACE: Final = 8.0
"""Seconds for a shim whose supervisor died to end its run by itself."""
SHORTEST_MARKER: Final = 16
"""Characters; a shorter one (a damaged record's) marks nothing, since others may have it too."""
RETRY: Final = 0.02

__all__ = [
    "MARKER",
    "SHIM_MARKER",
    "ProcessKey",
    "alive",
    "boot_id",
    "end_marked",
    "find_marked",
    "group_members",
    "start_time",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessKey:
    """One process and no other: `start` is in clock ticks since boot."""

    pid: int
    start: int


def boot_id() -> str:
    """Return the id of the machine's current boot; start times compare within one only."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def alive(key: ProcessKey) -> bool:
    """Say whether that very process still runs; a zombie does not."""
    state, start = _state_and_start(key.pid)
    return start == key.start and start != 0 and state not in {"Z", "X"}


def find_marked(markers: Collection[str]) -> dict[str, list[ProcessKey]]:
    """Return the living processes of each run, descendants included, by marker.

    Reads the environments that this user may read: its own processes, or all for root.
    """
    wanted = {
        f"{name}={marker}".encode(): marker
        for marker in markers
        for name in _NAMES
        if len(marker) >= SHORTEST_MARKER
    }
    found: dict[str, list[ProcessKey]] = {marker: [] for marker in markers}
    if not wanted:
        return found
    children: dict[int, list[int]] = {}
    roots: list[tuple[str, int]] = []
    for pid in _pids():
        children.setdefault(_parent(pid), []).append(pid)
        marker = _marker(pid, wanted)
        if marker is not None:
            roots.append((marker, pid))
    for marker, root in roots:
        pending = [root]
        while pending:
            pid = pending.pop()
            pending.extend(children.get(pid, ()))
            key = ProcessKey(pid=pid, start=start_time(pid))
            if pid != os.getpid() and alive(key) and key not in found[marker]:
                found[marker].append(key)
    return found


def group_members(group: int) -> dict[int, str]:
    """Return the state of each process of a process group, by pid."""
    found = {pid: _stat(pid) for pid in _pids()}
    return {pid: stat[0] for pid, stat in found.items() if stat and stat[2] == str(group)}


def end_marked(markers: Collection[str], deadline: float) -> int:
    """End every process of these runs within `deadline` seconds; return how many are left.

    Living shims are asked first and given SHIM_GRACE, since they know descendants that have lost
    the marker.
    """
    asked = [_ask_shim(key, marker) for marker, key in _found(markers)]
    if any(asked):
        until = time.monotonic() + SHIM_GRACE
        while time.monotonic() < until and _found(markers):
            time.sleep(RETRY)
    until = time.monotonic() + deadline
    while True:
        left = _found(markers)
        if not left or time.monotonic() > until:
            return len(left)
        for _, key in left:
            kill(key, signal.SIGKILL)
        time.sleep(RETRY)


def _found(markers: Collection[str]) -> list[tuple[str, ProcessKey]]:
    return [(marker, key) for marker, keys in find_marked(markers).items() for key in keys]


def kill(key: ProcessKey, number: int) -> bool:
    """Signal that very process; return whether it was there and could be signalled."""
    try:
        descriptor = os.pidfd_open(key.pid)
    except OSError as error:
        return error.errno == errno.ENOSYS and _kill_by_pid(key, number)
    try:
        if not alive(key):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _kill_by_pid(key: ProcessKey, number: int) -> bool:
    """Do it on a kernel without pidfd: the start time is read just before."""
    try:
        if alive(key):
            os.kill(key.pid, number)
            return True
    except OSError:
        pass  # gone, or not ours to signal
    return False


_NAMES: Final = (MARKER, SHIM_MARKER)


def _ask_shim(key: ProcessKey, marker: str) -> bool:
    if _marker(key.pid, {f"{SHIM_MARKER}={marker}".encode(): marker}) is None:
        return False
    return kill(key, ASK) and kill(key, signal.SIGCONT)


def _marker(pid: int, wanted: dict[bytes, str]) -> str | None:
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if entry in wanted:
                return wanted[entry]
    return None


def _pids() -> Iterable[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _state_and_start(pid: int) -> tuple[str, int]:
    fields = _stat(pid)
    return (fields[0], int(fields[19])) if fields else ("", 0)


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
