"""What the supervision tests share: starting the scripted agent, and waiting for processes."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.launcher.process import cgroup
from amux.launcher.process.run_processes import ProcessKey, alive, start_time
from amux.launcher.process.spawn import SpawnRequest, Stdio
from amux.procstat import look
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from subprocess import Popen

SCRIPT: Final = str(Path(__file__).parents[2] / "fixtures" / "scripted_agent.py")
COMMAND: Final = (sys.executable, "-I", "-S", SCRIPT)
DEADLINE: Final = SECONDS


def scripted(
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    stdio: Stdio = Stdio.PIPES,
    marker: str | None = None,
    cwd: str = "/",
) -> SpawnRequest:
    """Ask for a scripted agent with these arguments."""
    return SpawnRequest(
        argv=(*COMMAND, *arguments),
        environment={"PATH": "/usr/bin:/bin"} if environment is None else environment,
        cwd=cwd,
        marker=marker or secrets.token_hex(16),
        stdio=stdio,
    )


def eventually(condition: Callable[[], bool], deadline: float = DEADLINE) -> bool:
    """Poll until the condition holds; False when the deadline passed."""
    until = time.monotonic() + deadline
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.005)
    return False


def written_pid(file: Path) -> ProcessKey:
    """Wait until a process wrote its pid to the file, and return that process."""
    assert eventually(lambda: file.exists() and file.stat().st_size > 0)
    pid = int(file.read_text(encoding="utf-8"))
    return ProcessKey(pid=pid, start=start_time(pid))


def gone(key: ProcessKey) -> bool:
    """Wait until that very process no longer runs."""
    return eventually(lambda: not alive(key))


def remove_groups(marker: str) -> None:
    """Remove the control groups of a run whose guard and shim were killed, as a start would."""

    def removed() -> bool:
        for folder in cgroup.find(marker):
            cgroup.remove(folder)
        return not cgroup.find(marker)

    assert eventually(removed)


def kill_tree_above(agent: ProcessKey, guard: ProcessKey, supervisor: Popen[str]) -> None:
    """Kill supervisor, guard and shim as if at once: none gets a chance to act on another's end."""
    process = look(agent.pid)
    assert process is not None
    shim = process.parent
    pids = (supervisor.pid, guard.pid, shim)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for pid in reversed(pids):
        os.kill(pid, signal.SIGKILL)
    supervisor.wait()
    assert gone(guard)
    assert eventually(lambda: not Path(f"/proc/{shim}").exists())
