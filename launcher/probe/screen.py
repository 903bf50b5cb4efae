"""A screen that nobody looks at: it is read, and what it asks of its terminal is answered."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pexpect

from amux.launcher.errors import AgentFailed, DeadlinePassed
from amux.launcher.process.pty import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.launcher.run import Run

MOMENT: Final = 0.05
ANSWERS: Final = {b"\x1b[6n": b"\x1b[1;1R", b"\x1b[c": b"\x1b[?62;c"}
"""What a terminal answers to a question for the cursor's place, and for its kind."""


def attend(run: Run, until: Callable[[], bool], *, deadline: float) -> None:
    """Read the agent's screen until something has happened.

    Raises DeadlinePassed after `deadline` seconds, AgentFailed where the agent ends before.
    """
    descriptor = run.process.terminal
    if descriptor is None:
        message = "the agent is not on a PTY"
        raise AgentFailed(message)
    screen = Terminal(descriptor)
    end = time.monotonic() + deadline
    while not until():
        if time.monotonic() > end:
            message = f"nothing came of the screen within {deadline:.0f} s"
            raise DeadlinePassed(message)
        try:
            fresh = screen.read_nonblocking(65536, MOMENT)
        except pexpect.TIMEOUT:
            continue
        except pexpect.EOF as error:
            message = "the agent ended on its screen"
            raise AgentFailed(message, stderr=run.process.stderr_tail()) from error
        for question, answer in ANSWERS.items():
            for _ in range(fresh.count(question)):
                screen.send(answer)
