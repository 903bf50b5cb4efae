"""Start one agent under its shim.

This is the only place in amux that starts agents. `spawn` returns when the agent's program has
been executed; `amux.launcher.process.agent` holds on to it from then on.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.launcher.errors import AgentFailed, BadRequest, IsolationRefused
from amux.launcher.process import cgroup, shim
from amux.launcher.process.agent import (
    CLOSE_GRACE,
    KILL_GRACE,
    STDERR_TAIL,
    TERM_GRACE,
    AgentProcess,
    ExitStatus,
)
from amux.launcher.process.open_files import original_open_files
from amux.launcher.process.run_processes import MARKER, SHIM_MARKER, mark
from amux.launcher.process.specification import Identity as ShimIdentity
from amux.launcher.process.specification import Specification, encode
from amux.launcher.process.stdio import Ends, Stdio, above_stdio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amux.materializer.values import Identity

__all__ = [
    "BOOT",
    "CLOSE_GRACE",
    "KILL_GRACE",
    "STDERR_TAIL",
    "STDIO_SHARED",
    "TERM_GRACE",
    "AgentProcess",
    "ExitStatus",
    "SpawnRequest",
    "Stdio",
    "spawn",
]

KEPT_IGNORED: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)
"""Signals that the agent goes on ignoring where amux was started that way (nohup)."""
STDIO_SHARED: Final = threading.Event()
"""Set once an agent is being started on this process's own stdio: from then Ctrl-C is its own."""
LIBRARY: Final = str(Path(shim.__file__).absolute().parents[3])
BOOT: Final = (
    f"import sys; sys.path.append({LIBRARY!r}); from amux.launcher.process.shim import main; main()"
)
SHIM_NEEDS: Final = ("LD_LIBRARY_PATH",)
"""What a Python that was built with a shared library elsewhere can't start without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnRequest:
    """What to start.

    `environment` is complete: nothing is added but the marker. `identity` None keeps the caller's.
    `hold` are descriptors that the shim keeps open for as long as anything of the run is left (the
    session's lock). `stderr_copy` is a descriptor that the agent's stderr is copied to (PIPES).
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: str
    marker: str
    stdio: Stdio = Stdio.PIPES
    identity: Identity | None = None
    rows: int = 24
    columns: int = 80
    hold: tuple[int, ...] = ()
    stderr_copy: int | None = None


def spawn(request: SpawnRequest) -> AgentProcess:
    """Start the agent and return once its program was executed.

    Raises AgentNotFound or AgentFailed with what prevented it, BadRequest for an argument that no
    process can have, IsolationRefused for an identity on the caller's terminal.
    """
    if request.identity is not None and request.stdio is Stdio.INHERIT:
        raise IsolationRefused(
            "another user must not get the caller's terminal; use pipes or a new PTY"
        )
    specification = _specification(request)
    try:
        process = _start(request)
    except OSError as error:
        raise AgentFailed(
            f"no process can be started for {request.argv[0]}: {error.strerror}; "
            "see the limits of open files and processes (ulimit -n, ulimit -u)"
        ) from error
    specification.group = os.fsencode(process.group)
    process.begin(encode(specification))
    process.started()
    return process


def _start(request: SpawnRequest) -> AgentProcess:
    """Start guard and shim, which wait for the specification."""
    if request.stdio is Stdio.INHERIT:
        STDIO_SHARED.set()
    needs = {name: os.environ[name] for name in SHIM_NEEDS if name in os.environ}
    ours, theirs = (socket.socket(fileno=above_stdio(one.detach())) for one in socket.socketpair())
    with theirs, contextlib.ExitStack() as opened:
        opened.callback(ours.close)
        ends = Ends.make(request, opened)
        group = cgroup.make(f"{request.marker}.{secrets.token_hex(4)}")
        opened.callback(cgroup.remove, group)
        descriptors = (theirs.fileno(), *request.hold)
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", BOOT, *map(str, descriptors)],
            stdin=ends.stdin,
            stdout=ends.stdout,
            stderr=ends.stderr,
            cwd="/",
            env={**needs, SHIM_MARKER: request.marker},
            pass_fds=descriptors,
            start_new_session=request.stdio is Stdio.PIPES,
        )
        opened.pop_all()
    ends.close_theirs()
    return AgentProcess(request, guard, ours, ends, group)


def _specification(request: SpawnRequest) -> Specification:
    """Return what the shim is told; raise BadRequest for what no process can be started with."""
    environment = {**request.environment, MARKER: request.marker}
    for name in environment:
        if not name or "=" in name:
            raise BadRequest(f"{name!r} cannot be the name of an environment variable")
    texts = [*request.argv, request.cwd, *environment, *environment.values()]
    if not request.argv or any("\0" in text for text in texts):
        raise BadRequest("an argument, a folder or a variable holds a NUL, or there is no command")
    try:
        return _encoded(request, environment)
    except UnicodeEncodeError as error:
        raise BadRequest(f"{error.object!r} cannot be given to a process") from error


def _encoded(request: SpawnRequest, environment: Mapping[str, str]) -> Specification:
    who = request.identity
    return Specification(
        argv=[os.fsencode(argument) for argument in request.argv],
        environment=[os.fsencode(f"{name}={value}") for name, value in environment.items()],
        cwd=os.fsencode(request.cwd),
        stdio=request.stdio.value,
        parent=os.getpid(),
        ignored=[number for number in KEPT_IGNORED if signal.getsignal(number) is signal.SIG_IGN],
        files=original_open_files(),
        group=b"",
        mark=mark(request.marker),
        identity=ShimIdentity(who.uid, who.gid, who.groups) if who else None,
    )
