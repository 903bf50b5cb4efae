"""The caller's job: the process group that a shell stops, continues and puts in front as one."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.process import AgentProcess

TERMINAL: Final = "/dev/tty"
STDIN: Final = 0
LOOK_AGAIN: Final = 0.2
"""Seconds between two looks of a job in the background: nobody tells it that it is in front."""


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
