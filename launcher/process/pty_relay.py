"""The PTY of an agent of another account, joined to the caller's terminal.

A job in the foreground has the terminal in raw mode and types into the PTY. In the background it
only shows what the agent writes, until the shell brings it to the front.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from amux.launcher.process import job
from amux.launcher.process.stdio import write_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.launcher.process.spawn import AgentProcess, ExitStatus

CHUNK: Final = 65536
REST_BYTES: Final = 1024 * 1024
"""At most this much is copied after the agent's end: the most that a pipe can hold."""
LAST_OUTPUT: Final = 0.2
"""Seconds without output after the agent's end, before a PTY that is still open is left."""


def window_size(descriptor: int = 0) -> tuple[int, int]:
    """Return rows and columns of a terminal, 24 by 80 where it has none."""
    try:
        rows, columns = termios.tcgetwinsize(descriptor)
    except termios.error:
        return 24, 80
    return rows or 24, columns or 80


def relay_terminal(process: AgentProcess, wakeup: job.Wakeup) -> ExitStatus:
    """Join the caller's terminal to the agent's PTY until the agent has ended."""
    relay = _TerminalRelay(process, wakeup)
    before = signal.signal(signal.SIGWINCH, lambda *_: relay.resize())
    try:
        return relay.run()
    finally:
        signal.signal(signal.SIGWINCH, before)


class _TerminalRelay:
    """The caller's terminal in raw mode on one side, the PTY on the other."""

    def __init__(self, process: AgentProcess, wakeup: job.Wakeup) -> None:
        if process.terminal is None:
            raise ValueError("the agent was not started on a PTY")
        self._process = process
        self._master = process.terminal
        self._screen = sys.stdin.isatty()
        self._wakeup = wakeup
        self._stopped = False
        self._keys_open = True
        self._front = self._in_front()
        process.on_stopped(self._on_stopped)

    def run(self) -> ExitStatus:
        """Relay until the agent has ended and its last output is shown."""
        self.resize()
        while self._process.status is None:
            self._front = self._in_front()
            with self._raw():
                self._relay_until_stopped_or_ended()
            if self._stopped:
                self._suspend()
        self._front = self._in_front()
        with self._raw():  # the PTY has ended these lines already
            self._show_rest()
        if self._front:
            # What a terminal answers to the agent's last questions is not for the shell.
            termios.tcflush(0, termios.TCIFLUSH)
        return self._process.status

    def resize(self) -> None:
        """Give the PTY the size of the caller's terminal."""
        with contextlib.suppress(termios.error):
            termios.tcsetwinsize(self._master, window_size())

    def _on_stopped(self, number: int) -> None:
        del number
        self._stopped = True
        self._wakeup.poke()

    def _in_front(self) -> bool:
        """Say whether the terminal is ours now: a job in the background only shows."""
        with contextlib.suppress(OSError):
            return self._screen and os.tcgetpgrp(0) == os.getpgrp()
        return False

    @contextmanager
    def _raw(self) -> Iterator[None]:
        if not self._front:
            yield
            return
        before = termios.tcgetattr(0)
        tty.setraw(0, termios.TCSADRAIN)  # what was typed before it is the agent's
        try:
            yield
        finally:
            if self._in_front():
                # Unread input goes too: the agent could have made the terminal answer the shell.
                termios.tcsetattr(0, termios.TCSAFLUSH, before)

    def _relay_until_stopped_or_ended(self) -> None:
        """Relay, and come back too where the job was put to the front or the background."""
        typing = self._front or not self._screen
        pause = job.LOOK_AGAIN if self._screen and not self._front else None
        while self._process.status is None and not self._stopped:
            wake = self._wakeup.fileno()
            inputs = [self._master, wake, *([0] if typing and self._keys_open else [])]
            ready, _, _ = select.select(inputs, [], [], pause)
            if self._in_front() != self._front:
                return
            if wake in ready:
                self._wakeup.clear()
            if self._master in ready and not self._show():
                self._wakeup.until_ended(self._process)
                return
            if 0 in ready:
                self._type()

    def _show(self) -> bool:
        try:
            chunk = os.read(self._master, CHUNK)
        except OSError:
            return False  # EIO: nobody has the other side open
        write_all(1, chunk)
        return bool(chunk)

    def _type(self) -> None:
        keys = os.read(0, CHUNK)
        self._keys_open = bool(keys)
        # The end of a pipe is the end-of-file key on the agent's side.
        write_all(self._master, keys or b"\x04")

    def _show_rest(self) -> None:
        """Show what the PTY still holds, and no more: somebody else may hold its other side."""
        for _ in range(REST_BYTES // CHUNK):
            if not (select.select([self._master], [], [], LAST_OUTPUT)[0] and self._show()):
                break

    def _suspend(self) -> None:
        """Stop like the agent did; go on with it when the caller's shell says so."""
        self._stopped = False
        job.stop()
        self.resize()
        self._process.resume()
