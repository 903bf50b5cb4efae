"""The fork that becomes the agent: its session, signals, limits, identity, folder and program.

Standard library only, and cheap modules alone: the shim imports it.
"""

from __future__ import annotations

import ctypes
import os

from amux.launcher.process import cgroup
from amux.launcher.process.specification import PIPES, PTY, Specification

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SIGKILL = 9
DEAF = (signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
"""Signals that the shim ignores, since the agent shares its terminal."""
RESET = (*DEAF, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
"""Signals that the agent gets back with their default action."""


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process, or raise OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, ctypes.c_ulong(value), 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _become_agent(specification: Specification, shim: int) -> None:
    """Turn the forked child into the agent. Whatever fails raises."""
    if specification.group:
        cgroup.join(os.fsdecode(specification.group))
    if specification.stdio == PIPES:
        os.setsid()
    if specification.stdio == PTY:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())  # from the background, so with SIGTTOU still ignored
    _signal_defaults(specification.ignored)
    _set_limits(specification)
    if specification.identity is not None:
        from amux.materializer import privileges  # noqa: PLC0415  # same

        who = specification.identity
        privileges.drop(privileges.Ids(who.uid, who.gid, who.groups))
    os.chdir(specification.cwd)
    # Armed last: a change of identity clears it.
    prctl(PR_SET_PDEATHSIG, SIGKILL)
    if os.getppid() != shim:
        os._exit(1)
    environment = dict(entry.split(b"=", 1) for entry in specification.environment)
    os.execvpe(specification.argv[0], specification.argv, environment)  # noqa: S606  # no shell wanted


def _set_limits(specification: Specification) -> None:
    """Give back the limit of open files that the supervisor raised, and mark the run."""
    import resource  # noqa: PLC0415  # in the fork alone, so the shim does not keep it

    if specification.files:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (specification.files, hard))
    _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
    if specification.mark and hard == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_RTTIME, (specification.mark, hard))


def _signal_defaults(ignored: list[int]) -> None:
    for number in RESET:
        signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def start_agent(specification: Specification) -> tuple[int, int, str]:
    """Fork and execute the agent; return its pid, or 0 with an errno and what went wrong."""
    shim = os.getpid()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            _become_agent(specification, shim)
        except BaseException as error:  # noqa: BLE001  # the outermost frame of the child
            code = error.errno if isinstance(error, OSError) and error.errno else 0
            name = getattr(error, "filename", None)
            detail = f": {os.fsdecode(name)}" if isinstance(name, (bytes, str)) else ""
            text = f"{code} {type(error).__name__}: {error}{detail if code else ''}"
            os.write(writing, os.fsencode(text.replace("\n", " "))[:2000])
        os._exit(127)
    os.close(writing)
    answer = b""
    while chunk := os.read(reading, 4096):
        answer += chunk
    os.close(reading)
    if answer:
        os.waitpid(pid, 0)
        number, _, stage = os.fsdecode(answer).partition(" ")
        return 0, int(number), stage
    return pid, 0, ""
