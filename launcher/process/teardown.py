"""The end of a run, as its shim and its guard bring it about. Standard library only.

First TERM and half a second for what was left behind, so that it can tidy up; then everything is
killed, by the run's control group where it has one, and always by the tree: as a subreaper shim
and guard inherit every orphan, so nothing leaves the tree below them.
"""

from __future__ import annotations

import errno
import os
import select
import time

from amux.launcher.process import cgroup
from amux.launcher.process.table import below, children, everybody, kill_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.procstat import Process

# Milliseconds.
ORPHAN_GRACE = 500
"""Between TERM and KILL for what an agent left behind."""
KILL_GRACE = 5_000
"""Without one fewer than before, until what is left counts as survivors."""
RETRY = 10
"""Between two looks at what is left."""

SIGTERM, SIGCONT = 15, 18


class Ending:
    """Ends everything below this process.

    `reap` collects ended children and says whether any are left, `wake` is a descriptor that each
    signal writes to, `group` the folder of the run's control group or empty, and `tell` hears how
    many are left each time that it is fewer.
    """

    def __init__(
        self,
        *,
        reap: Callable[[], bool],
        wake: int,
        group: str,
        tell: Callable[[int], None],
    ) -> None:
        self._reap = reap
        self._wake = wake
        self._group = group
        self._tell = tell

    def end(self) -> int:
        """End what is left; return how many processes could not be ended."""
        self._ask()
        _hurry()
        fewest = vain = 0
        until = now() + KILL_GRACE
        while self._is_left():
            if self._group:
                cgroup.end(self._group)
            vain = 0 if kill_all(_descendants, _whole_group) else vain + 1
            left = len(_descendants()) if self._reap() else 0
            if left and (not fewest or left < fewest):
                fewest, until = left, now() + KILL_GRACE
                self._tell(left)
            if now() > until or (left and vain > 1):  # not ours to signal
                return max(left, 1)
            self._pause()
        return 0

    def _ask(self) -> None:
        """Send TERM to whatever becomes our child, and wait a while for its end.

        An unreaped child's pid can't have been reused.
        """
        until = now() + ORPHAN_GRACE
        asked: set[int] = set()
        while self._reap() and now() < until:
            for pid in own_children():
                if pid not in asked:
                    asked.add(pid)
                    send(pid, SIGTERM)
                    send(pid, SIGCONT)
            self._pause()

    def _is_left(self) -> bool:
        return self._reap() or (bool(self._group) and cgroup.populated(self._group))

    def _pause(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if poll.poll(RETRY):
            os.read(self._wake, 4096)


def _hurry() -> None:
    """Go before the rest of the machine, where we may: what is left can be a thousand forks."""
    try:  # noqa: SIM105  # contextlib is too heavy here
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    except OSError:
        pass  # only root may


def _descendants() -> list[Process]:
    return below(everybody(), [os.getpid()])


def _whole_group(process: Process) -> bool:
    """Say that a group has no member of somebody else's: we share neither session nor group."""
    return process.session != os.getsid(0) and process.group != os.getpgrp()


def now() -> float:
    """Return milliseconds on the monotonic clock."""
    return time.monotonic() * 1000


def send(pid: int, number: int) -> None:
    """Signal an unreaped child, or a group by its negative number; nothing where that can't be."""
    try:
        os.kill(pid, number)
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.EPERM):
            raise


def own_children() -> list[int]:
    """Return our own children."""
    me = os.getpid()
    try:
        return children(me)
    except FileNotFoundError:
        return [process.pid for process in everybody().values() if process.parent == me]


def reap_all() -> bool:
    """Collect ended children; say whether any are left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
