"""The caller's job: the process group that a shell stops, continues and puts in front as one."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Final

from amux.launcher.process.signal_safe import Lent
from amux.launcher.process.stdio import above_stdio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.launcher.process.agent import AgentProcess, ExitStatus

TERMINAL: Final = "/dev/tty"
STDIN: Final = 0
WAKEUPS: Final = 65536
LOOK_AGAIN: Final = 0.2
"""Seconds between two looks of a job in the background: nobody tells it that it is in front."""


class Wakeup:
    """What a `select` of the main thread waits for beside its input: any signal, and `poke`.

    Python runs a handler between two of its own steps. For a signal that comes right before a
    system call, or to another thread, that would be after the call. Main thread only, but `poke`.
    """

    def __init__(self) -> None:
        pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wake, self._waker = (above_stdio(end) for end in pipe)
        self._use = Lent(lambda: os.close(self._waker))
        self._before = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)

    def fileno(self) -> int:
        """Return the descriptor that can be read once something has come."""
        return self._wake

    def poke(self) -> None:
        """Wake the main thread from another one; nothing happens after `close`."""
        with contextlib.suppress(BlockingIOError), self._use.use() as there:
            if there:
                os.write(self._waker, b"\0")

    def clear(self) -> None:
        """Forget what has come so far."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, WAKEUPS)

    def until_ended(self, process: AgentProcess) -> ExitStatus:
        """Wait for the end of an agent that pokes at it."""
        while process.status is None:
            select.select([self], [], [])
            self.clear()
        return process.status

    def close(self) -> None:
        """Leave signals to whoever had them before."""
        signal.set_wakeup_fd(self._before)
        self._use.close()
        os.close(self._wake)


def in_front() -> bool:
    """Say whether this job has the terminal."""
    with contextlib.suppress(OSError):
        terminal = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            return os.tcgetpgrp(terminal) == os.getpgrp()
        finally:
            os.close(terminal)
    return False


def read_keys(size: int) -> bytes:
    """Read stdin; where that is a terminal which another job has, first wait to be in front.

    Raises OSError where there is no stdin.
    """
    while os.isatty(STDIN):
        select.select([STDIN], [], [])
        try:
            if os.tcgetpgrp(STDIN) == os.getpgrp():
                break
        except OSError:
            break  # nobody's job controls it
        time.sleep(LOOK_AGAIN)  # these keys are the other job's
    return os.read(STDIN, size)


def stop() -> None:
    """Stop as Ctrl-Z does, and return once the shell says that the job goes on.

    In front the whole job: a shell waits until every process of a pipeline has stopped. Else this
    process alone, which may be a part of somebody's program.
    """
    if in_front():
        os.killpg(os.getpgrp(), signal.SIGTSTP)
    else:
        os.kill(os.getpid(), signal.SIGTSTP)


@contextlib.contextmanager
def shared_with(process: AgentProcess) -> Iterator[None]:
    """Stop the agent, which is in a group of its own, with the job, and continue it with the job.

    Main thread only.
    """

    def stopped(number: int, frame: object) -> None:
        del frame
        process.signal_group(signal.SIGSTOP)  # no shell is its parent, so TSTP stops it not
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)  # returns once the job goes on
        signal.signal(number, stopped)
        process.signal_group(signal.SIGCONT)

    before = signal.getsignal(signal.SIGTSTP)
    if before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGTSTP, stopped)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, before)
