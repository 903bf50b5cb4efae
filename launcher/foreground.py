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
import termios
import threading
from typing import TYPE_CHECKING, Any, Final, Self

from amux.launcher.process import job
from amux.launcher.process.pty_relay import CHUNK, LAST_OUTPUT, REST_BYTES, relay_terminal
from amux.launcher.process.spawn import STDIO_SHARED, Stdio
from amux.launcher.process.stdio import write_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from amux.launcher.channel.stdio_relay import Driving
    from amux.launcher.process.spawn import AgentProcess, ExitStatus

WRITE_SLICE: Final = 0.2
"""Seconds to wait at once for a full pipe to take more."""
KEYBOARD: Final = (signal.SIGINT, signal.SIGQUIT)
STOPPING: Final = (signal.SIGTERM, signal.SIGHUP)


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
        self._wakeup = job.Wakeup()
        for number in (*KEYBOARD, *STOPPING):
            # What the caller had ignored (nohup) stays so, for the agent too. A handler of ours is
            # not inherited, so nobody takes it for the caller's wish.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._wakeup.close()

    def hold(self, process: AgentProcess) -> None:
        """Give the agent what is sent to this process from now on."""
        self._process = process

    def serve(self, process: AgentProcess, driving: Driving | None = None) -> ExitStatus:
        """Serve the agent until it has ended, as its kind of stdio needs; return how it ended.

        With `driving` a program's messages pass through it, and the agent's.
        """
        self.hold(process)
        process.on_end(lambda _: self._wakeup.poke())
        if process.request.stdio is Stdio.PTY:
            return relay_terminal(process, self._wakeup)
        if process.request.stdio is Stdio.PIPES:
            with job.shared_with(process):
                return relay_pipes(process, self._wakeup, driving)
        process.on_stopped(lambda _: job.stop())
        status = self._wakeup.until_ended(process)
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
            # As a terminal does: the agent's whole group, also what its shell waits for.
            process.signal_group(number)


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


def relay_pipes(
    process: AgentProcess, wakeup: job.Wakeup, driving: Driving | None = None
) -> ExitStatus:
    """Copy the caller's stdin and stdout; the agent's stderr goes by `stderr_copy`."""
    typed = driving.typed if driving is not None else bytes
    say = driving.say if driving is not None else functools.partial(write_all, 1)
    threading.Thread(target=_feed, args=(process, typed), name="amux-stdin", daemon=True).start()
    if process.stdout is not None:
        listening = _copy_output(process, wakeup, process.stdout.fileno(), say)
        if not (listening and say(b"")):
            process.stdout.close()
    return wakeup.until_ended(process)


def _copy_output(
    process: AgentProcess, wakeup: job.Wakeup, source: int, say: Callable[[bytes], bool]
) -> bool:
    """Copy to stdout until the pipe ends, or the agent has and the rest is copied.

    The pipe may outlive the run: a target can hand its end to a process of its own elsewhere.
    Say whether the caller still listened.
    """
    rest = REST_BYTES
    while rest > 0:
        ended = process.status is not None
        inputs = (source, wakeup.fileno())
        ready, _, _ = select.select(inputs, [], [], LAST_OUTPUT if ended else None)
        if wakeup.fileno() in ready:
            wakeup.clear()
        chunk = os.read(source, CHUNK) if source in ready else b""
        if not chunk and (source in ready or not ready):
            break
        if not say(chunk):
            return False
        if ended:
            rest -= len(chunk)
    return True


def _feed(process: AgentProcess, typed: Callable[[bytes], bytes]) -> None:
    """Copy what of stdin is let through to the agent; its end is passed on."""
    chunk = b"-"
    while chunk:
        try:
            chunk = job.read_keys(CHUNK)
        except OSError:  # a stdin that is closed has nothing more to say
            chunk = b""
        view = memoryview(typed(chunk))
        while view:
            try:
                view = view[process.write(view) :]
            except OSError:
                return
            if view:
                process.writable(WRITE_SLICE)
    process.close_stdin()
