"""Run an agent in the foreground: a person's terminal, or a shell's pipes, stay as without amux.

An agent of the caller's own account shares the caller's terminal and process group, and amux
only steps back. An agent of another account gets a PTY or pipes of its own, which are relayed: on
a shared terminal it could type into the caller's shell.

    with Foreground() as place:
        process = spawn(...)
        status = place.serve(process)
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import sys
import termios
import threading
import tty
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from launcher.spawn import STDIO_SHARED, ExitStatus, Stdio
from launcher.stdio import write_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from launcher.driving import Driving
    from launcher.spawn import AgentProcess

CHUNK: Final = 65536
REST_BYTES: Final = 1024 * 1024
"""At most this much is copied after the agent's end: the most that a pipe can hold."""
LAST_OUTPUT: Final = 0.2
"""Seconds without output after the agent's end, before a PTY that is still open is left."""
WRITE_SLICE: Final = 0.2
"""Seconds to wait at once for a full pipe to take more."""
KEYBOARD: Final = (signal.SIGINT, signal.SIGQUIT)
STOPPING: Final = (signal.SIGTERM, signal.SIGHUP)
LOST: Final = ExitStatus(signal=signal.SIGKILL, lost=True)


class Foreground:
    """amux's place in the caller's process group. Main thread only.

    Before there is an agent, Ctrl-C, TERM and HUP end the launch. From then on Ctrl-C and
    Ctrl-backslash are the agent's, and TERM and HUP start the stop ladder.
    """

    def __init__(self) -> None:
        self._process: AgentProcess | None = None
        self._terminal = _Terminal()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (*KEYBOARD, *STOPPING):
            # What the caller had ignored (nohup) stays so, for the agent too. A handler of ours is
            # not inherited, so nobody takes it for the caller's wish.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def serve(self, process: AgentProcess, driving: Driving | None = None) -> ExitStatus:
        """Serve the agent until it has ended, as its kind of stdio needs; return how it ended.

        With `driving` a program's messages pass through it, and the agent's.
        """
        self._process = process
        if process.request.stdio is Stdio.PTY:
            return relay_terminal(process)
        if process.request.stdio is Stdio.PIPES:
            return relay_pipes(process, driving)
        process.on_stopped(lambda _: os.kill(os.getpid(), signal.SIGTSTP))
        status = process.wait() or LOST
        # A killed agent had no chance to leave raw mode itself.
        self._terminal.take_back(modes=status.signal is not None)
        return status

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        process = self._process
        if process is None:
            if number == signal.SIGINT and not STDIO_SHARED.is_set():
                raise KeyboardInterrupt
            if number in STOPPING:
                raise SystemExit(128 + number)
        elif number in STOPPING:
            process.begin_stop()
        elif process.request.stdio is Stdio.PIPES:
            process.signal(number)


class _Terminal:
    """The caller's terminal as it was before the agent had it, if stdin is one."""

    def __init__(self) -> None:
        self._modes: list[Any] | None = None
        with contextlib.suppress(termios.error, OSError):
            if os.tcgetpgrp(0) == os.getpgrp():
                self._modes = termios.tcgetattr(0)

    def take_back(self, *, modes: bool) -> None:
        """Take the foreground from a group that is gone, and with `modes` restore the modes too.

        A job that was put into the background meanwhile leaves the terminal to the shell.
        """
        if self._modes is None:
            return
        ttou = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with contextlib.suppress(termios.error, OSError):
            if _is_gone(os.tcgetpgrp(0)):
                os.tcsetpgrp(0, os.getpgrp())
            if modes and os.tcgetpgrp(0) == os.getpgrp():
                termios.tcsetattr(0, termios.TCSADRAIN, self._modes)
        signal.signal(signal.SIGTTOU, ttou)


def _is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def window_size(descriptor: int = 0) -> tuple[int, int]:
    """Return rows and columns of a terminal, 24 by 80 where it has none."""
    try:
        rows, columns = termios.tcgetwinsize(descriptor)
    except termios.error:
        return 24, 80
    return rows or 24, columns or 80


def relay_pipes(process: AgentProcess, driving: Driving | None = None) -> ExitStatus:
    """Copy the caller's stdin and stdout; the agent's stderr goes by `stderr_copy`."""
    typed = driving.typed if driving is not None else bytes
    say = driving.say if driving is not None else functools.partial(write_all, 1)
    threading.Thread(target=_feed, args=(process, typed), name="amux-stdin", daemon=True).start()
    if process.stdout is not None:
        listening = _copy_output(process, process.stdout.fileno(), say)
        if not (listening and say(b"")):
            process.stdout.close()
    return process.wait() or LOST


def _copy_output(process: AgentProcess, source: int, say: Callable[[bytes], bool]) -> bool:
    """Copy to stdout until the pipe ends, or the agent has and the rest is copied.

    The pipe may outlive the run: a target can hand its end to a process of its own elsewhere.
    Say whether the caller still listened.
    """
    wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    process.on_end(lambda _: os.close(waker))
    rest = REST_BYTES
    inputs = [source, wake]
    try:
        while rest > 0:
            ready, _, _ = select.select(inputs, [], [], None if wake in inputs else LAST_OUTPUT)
            if wake in ready:
                inputs.remove(wake)
            chunk = os.read(source, CHUNK) if source in ready else b""
            if not chunk and (source in ready or not ready):
                break
            if not say(chunk):
                return False
            if wake not in inputs:
                rest -= len(chunk)
    finally:
        os.close(wake)
    return True


def relay_terminal(process: AgentProcess) -> ExitStatus:
    """Join the caller's terminal to the agent's PTY until the agent has ended."""
    relay = _TerminalRelay(process)
    before = signal.signal(signal.SIGWINCH, lambda *_: relay.resize())
    try:
        return relay.run()
    finally:
        signal.signal(signal.SIGWINCH, before)


class _TerminalRelay:
    """The caller's terminal in raw mode on one side, the PTY on the other."""

    def __init__(self, process: AgentProcess) -> None:
        if process.terminal is None:
            raise ValueError("the agent was not started on a PTY")
        self._process = process
        self._master = process.terminal
        self._screen = sys.stdin.isatty()
        self._wake, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._stopped = False
        self._keys_open = True
        process.on_stopped(self._on_stopped)
        process.on_end(lambda _: self._poke())

    def run(self) -> ExitStatus:
        """Relay until the agent has ended and its last output is shown."""
        self.resize()
        try:
            while self._process.status is None:
                with self._raw():
                    self._relay_until_stopped_or_ended()
                if self._stopped:
                    self._suspend()
            with self._raw():  # the PTY has ended these lines already
                self._show_rest()
            if self._screen:
                # What a terminal answers to the agent's last questions is not for the shell.
                termios.tcflush(0, termios.TCIFLUSH)
        finally:
            os.close(self._wake)
            waker, self._waker = self._waker, -1
            os.close(waker)
        return self._process.status

    def resize(self) -> None:
        """Give the PTY the size of the caller's terminal."""
        with contextlib.suppress(termios.error):
            termios.tcsetwinsize(self._master, window_size())

    def _on_stopped(self, number: int) -> None:
        del number
        self._stopped = True
        self._poke()

    def _poke(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._waker, b"\0")

    @contextmanager
    def _raw(self) -> Iterator[None]:
        if not self._screen:
            yield
            return
        before = termios.tcgetattr(0)
        tty.setraw(0)
        try:
            yield
        finally:
            # Unread input goes too: the agent could have made the terminal answer into the shell.
            termios.tcsetattr(0, termios.TCSAFLUSH, before)

    def _relay_until_stopped_or_ended(self) -> None:
        while self._process.status is None and not self._stopped:
            inputs = [self._master, self._wake, *([0] if self._keys_open else [])]
            ready, _, _ = select.select(inputs, [], [])
            if self._wake in ready:
                os.read(self._wake, CHUNK)
            if self._master in ready and not self._show():
                self._process.wait()
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
        os.kill(os.getpid(), signal.SIGTSTP)
        self.resize()
        self._process.resume()


def _feed(process: AgentProcess, typed: Callable[[bytes], bytes]) -> None:
    """Copy what of stdin is let through to the agent; its end is passed on."""
    chunk = b"-"
    while chunk:
        chunk = os.read(0, CHUNK)
        view = memoryview(typed(chunk))
        while view:
            try:
                view = view[process.write(view) :]
            except OSError:
                return
            if view:
                process.writable(WRITE_SLICE)
    process.close_stdin()
