"""End an agent that amux started to ask, or whose launch fails, without cutting anything short.

An agent may refresh its login as soon as it starts, with a token that works once. Whoever ends it
between the request and the new token on disk logs its user out. So an agent ends on the end of its
stdin, in its own time; one that would leave in the middle even then (Claude) is frozen, looked at,
and killed only while it holds none of its locks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.launcher.process.run_processes import group_members
from amux.launcher.process.stdio import Stdio

if TYPE_CHECKING:
    from amux.launcher.process.agent import AgentProcess
    from amux.materializer.values import Identity
    from amux.providers.base import Shutdown

END_SECONDS: Final = 30.0
"""For an agent to end after its stdin has."""
TERM_SECONDS: Final = 2.0
"""Between TERM and KILL for one that did not."""
BUSY_SECONDS: Final = 90.0
"""For an agent to let go of its locks: longer than it waits for any answer itself."""
STALE_SECONDS: Final = 60.0
"""A lock that was not touched for so long is one that a crash left; agents touch theirs."""
FREEZE_SECONDS: Final = 5.0
RETRY: Final = 0.02


def end(process: AgentProcess, ending: Shutdown) -> None:
    """End the agent and its descendants, and wait until they are gone.

    Takes END_SECONDS at most, or BUSY_SECONDS where the agent holds a lock of `ending`.
    """
    if process.request.stdio is not Stdio.PIPES:
        process.stop()
        return
    if not ending.lock_files:
        process.stop(close=END_SECONDS, term=TERM_SECONDS)
        return
    pids = _kill_idle(process, ending)
    process.stop(close=0.0, term=TERM_SECONDS)
    _remove(_own(ending.pid_folders, pids), process.request.identity)


def begin_end(process: AgentProcess, ending: Shutdown) -> None:
    """Start to stop a run that amux gives up, once the agent holds no lock; return at once."""
    if not _locked(ending.lock_files):
        process.begin_stop()
        return

    def stop_idle() -> None:
        until = time.monotonic() + BUSY_SECONDS
        while _locked(ending.lock_files) and time.monotonic() < until:
            if process.wait(RETRY) is not None:
                return
        process.begin_stop()

    threading.Thread(target=stop_idle, name=f"amux-end-{process.pid}", daemon=True).start()


def _kill_idle(process: AgentProcess, ending: Shutdown) -> tuple[int, ...]:
    """Kill the agent's group at a moment without a lock; return the processes that it had."""
    until = time.monotonic() + BUSY_SECONDS
    while process.status is None:
        process.signal_group(signal.SIGSTOP)
        pids = _frozen(process)
        if not _locked(ending.lock_files) or time.monotonic() > until:
            process.signal_group(signal.SIGKILL)
            return pids
        process.signal_group(signal.SIGCONT)
        while _locked(ending.lock_files) and time.monotonic() < until:
            if process.wait(RETRY) is not None:
                break
    return ()


def _frozen(process: AgentProcess) -> tuple[int, ...]:
    """Wait until every process of the group is stopped; return their ids."""
    until = time.monotonic() + FREEZE_SECONDS
    while True:
        members = group_members(process.pid)
        if time.monotonic() > until or not set(members.values()) - {"T", "t", "Z", "X"}:
            return tuple(members)
        process.wait(RETRY / 10)


def _locked(locks: tuple[str, ...]) -> bool:
    """Say whether one of the locks is there and alive. A lock stands beside what a link names."""
    now = time.time()
    for lock in locks:
        stem, ending = os.path.splitext(lock)  # noqa: PTH122  # a string is wanted
        for place in {lock, os.path.realpath(stem) + ending}:
            with contextlib.suppress(OSError):
                if abs(now - os.lstat(place).st_mtime) < STALE_SECONDS:
                    return True
    return False


def _own(folders: tuple[str, ...], pids: tuple[int, ...]) -> list[str]:
    found: list[str] = []
    for folder in folders:
        with contextlib.suppress(OSError):
            found.extend(
                os.path.join(folder, name)  # noqa: PTH118  # strings are wanted
                for name in os.listdir(folder)  # noqa: PTH208  # same
                if name.partition(".")[0] in set(map(str, pids))
            )
    return found


def _remove(paths: list[str], identity: Identity | None) -> None:
    """Remove files with the rights of the account that they belong to."""
    if identity is None:
        for path in paths:
            with contextlib.suppress(OSError):
                Path(path).unlink()
    elif paths:
        from amux.materializer.trial import run as run_trial  # noqa: PLC0415  # only where isolated

        run_trial(("/bin/rm", "-f", "--", *paths), identity=identity, environment={})
