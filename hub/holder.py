"""Who holds a root: what the lock file of a running Hub says, and whether it still holds."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from amux.hub.errors import HomeRefused
from amux.hub.residence import residence
from amux.procstat import look

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from amux.hub.config import SettingValue

LOCK_FILE: Final = "hub.lock"
_LAST_PID: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A running Hub: process, version, sockets, and the settings that it started with.

    `start` is the kernel's start time of the process in clock ticks: pid and start
    together name one process for ever. `home` is the folder that it serves, as in
    `amux.hub.residence`. `placed` says how it was started and where it lives among the control
    groups, as in `amux.hub.placement`; `group` is the folder of one that was made for it.
    """

    pid: int
    start: int
    version: str
    socket: str
    agent_socket: str
    listen: str
    started_at: int
    home: str
    placed: str = ""
    group: str = ""
    settings: Mapping[str, SettingValue] = field(default_factory=dict)

    @property
    def on_demand(self) -> bool:
        """Say whether a launch started it, rather than a person or a service manager."""
        return self.placed not in {"", "socket"}

    def as_json(self) -> dict[str, object]:
        """Return what the lock file holds."""
        return {
            "pid": self.pid,
            "start": self.start,
            "version": self.version,
            "socket": self.socket,
            "agent_socket": self.agent_socket,
            "listen": self.listen,
            "started_at": self.started_at,
            "home": self.home,
            "placed": self.placed,
            "group": self.group,
            "settings": dict(self.settings),
        }


def read_holder(home: Path, *, living: bool = True) -> Holder | None:
    """Return the Hub that the lock file names, or None when it names none.

    What a copied lock file says is about another home, so that it names none here. `living`
    asks for one whose process runs. The lock itself is not tried: for a moment that would
    keep a Hub that starts just then from getting it.
    """
    try:
        descriptor = os.open(home / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        holder = _parse(os.pread(descriptor, 65536, 0))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if holder is None or not _serves(holder, home):
        return None
    if living and process_start(holder.pid) != holder.start:
        return None
    return holder


def _serves(holder: Holder, home: Path) -> bool:
    """Say whether it is this very folder that the Hub serves, by device and inode."""
    try:
        here = residence(home)
    except HomeRefused:
        return False
    return holder.home.rpartition(":")[0] == here.text.rpartition(":")[0]


def process_start(pid: int) -> int | None:
    """Return a process's start time in clock ticks, or None when there is no such process.

    One that has ended and that nobody has reaped, as in a container without an init, is none.
    """
    process = look(pid)
    return process.start if process is not None and process.lives else None


def _parse(data: bytes) -> Holder | None:
    try:
        tree = json.loads(data)
        settings = {
            str(key): tuple(value) if isinstance(value, list) else value
            for key, value in tree["settings"].items()
        }
        pid = int(tree["pid"])
        if not 0 < pid <= _LAST_PID:
            return None
        return Holder(
            pid=pid,
            start=int(tree["start"]),
            version=str(tree["version"]),
            socket=str(tree["socket"]),
            agent_socket=str(tree["agent_socket"]),
            listen=str(tree["listen"]),
            started_at=int(tree["started_at"]),
            home=str(tree["home"]),
            placed=str(tree.get("placed", "")),
            group=str(tree.get("group", "")),
            settings=settings,
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
