"""The kernel's table of processes, and how a set of them is ended although its members fork.

A process that is stopped forks no more. So all are stopped first, over and over until no new one
turns up, and only then killed: killed one by one, the last would have forked again. Processes are
told apart by pid and start time and signalled through a pidfd, so a reused pid never hits a
stranger. Standard library only, and cheap modules alone: the shim imports it.
"""

from __future__ import annotations

import errno
import os
import time

from amux.procstat import Process, look

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterable
else:
    import _signal as signal

SIGKILL, SIGSTOP = 9, 19
PASSES = 100
"""Looks at a set that goes on growing, before what is known of it is killed."""
RETRY = 10
"""Milliseconds between two looks."""


def everybody() -> dict[int, Process]:
    """Return every process that this account may see, by pid."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  # pathlib is too heavy here
        if name.isdigit():
            process = look(int(name))
            if process is not None:
                found[process.pid] = process
    return found


def children(pid: int) -> list[int]:
    """Return the children of a process that has one thread; raise OSError where none tells."""
    with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:  # noqa: PTH123  # pathlib is heavy
        return [int(child) for child in file.read().split()]


def name(pid: int) -> str:
    """Return the name that a process gave itself, fit for a terminal; empty if it is gone.

    Its arguments may hold a secret, so they are not asked for.
    """
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:  # noqa: PTH123  # pathlib is too heavy here
            text = file.read().rstrip(b"\n").decode("ascii", "replace")
    except OSError:
        return ""
    return "".join(one if " " <= one <= "~" else "?" for one in text)


def below(table: dict[int, Process], roots: Iterable[int]) -> list[Process]:
    """Return the descendants of these processes that live, without themselves."""
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    found, pending = [], list(roots)
    while pending:
        for process in children.pop(pending.pop(), ()):
            pending.append(process.pid)
            if process.lives:
                found.append(process)
    return found


def send(process: Process, number: int) -> bool:
    """Signal that very process; say whether it was there and could be signalled."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError as error:
        # A kernel before 5.3 has none: then the start time is read just before.
        return error.errno == errno.ENOSYS and _send_by_pid(process, number)
    try:
        now = look(process.pid)
        if now is None or now.start != process.start or not now.lives:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False  # gone, or not ours to signal
    finally:
        os.close(descriptor)
    return True


def kill_all(find: Callable[[], list[Process]], ours: Callable[[Process], bool]) -> bool:
    """Stop what `find` returns until nothing of it runs, then kill it; False if that fails for all.

    `ours` says whether a process's whole group is of the run. Such a group is stopped at once: a
    machine full of forks leaves little time, and this also reaches members that came meanwhile.
    """
    known: dict[tuple[int, int], Process] = {}
    for turn in range(PASSES):
        if turn > 1:
            time.sleep(RETRY / 1000)
        found = find()
        known.update({(process.pid, process.start): process for process in found})
        running = [process for process in found if not process.stopped]
        if not running:
            break
        groups = {process.group: process for process in running if ours(process)}
        singly = [process for process in running if process.group not in groups]
        reached = [_stop_group(member) for member in groups.values()]
        reached += [send(process, SIGSTOP) for process in singly]
        if not any(reached):
            break
    killed = [process for process in known.values() if send(process, SIGKILL)]
    # Nothing found is no failure: who dies meanwhile comes and goes between two looks.
    return bool(killed) or not known


def _stop_group(member: Process) -> bool:
    """Stop a process and its group; stopped, it can't end, so the group goes on being its."""
    if not send(member, SIGSTOP):
        return False
    now = look(member.pid)
    if now is not None and now.start == member.start and now.lives and now.group > 1:
        try:
            os.killpg(now.group, SIGSTOP)
        except OSError as error:
            if error.errno not in (errno.ESRCH, errno.EPERM):
                raise
    return True


def _send_by_pid(process: Process, number: int) -> bool:
    try:
        now = look(process.pid)
        if now is not None and now.start == process.start:
            os.kill(process.pid, number)
            return True
    except OSError:
        pass  # gone, or not ours to signal
    return False
