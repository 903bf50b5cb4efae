"""A running agent as its supervisor holds it, until nothing of it is left."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from selectors import EVENT_READ, PollSelector
from typing import TYPE_CHECKING, Final

from amux.launcher.errors import AgentFailed, AgentNotFound, IsolationRefused, LaunchError
from amux.launcher.process import cgroup
from amux.launcher.process.run_processes import ProcessKey, end_left, end_marked, kill, start_time
from amux.launcher.process.signal_safe import Lent, Moment
from amux.launcher.process.stdio import Stdio, write_all

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    from amux.launcher.process.spawn import SpawnRequest
    from amux.launcher.process.stdio import Ends

START_DEADLINE: Final = 30.0
"""Seconds for the shim to start and to execute the agent."""
CLOSE_GRACE: Final = 2.0
"""Seconds between closing the agent's stdin and TERM."""
TERM_GRACE: Final = 5.0
"""Seconds between TERM and KILL."""
KILL_GRACE: Final = 5.0
"""Seconds for a killed agent and its descendants to be gone."""
SHIM_GRACE: Final = 2.0
"""Seconds more for the shim's own answer, before it is killed too."""
PIPE_CHUNKS: Final = 16
"""Reads of 64 KiB that empty any pipe: the kernel lets one hold 1 MiB at most."""
STDERR_TAIL: Final = 16 * 1024
"""Bytes of the agent's stderr that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitStatus:
    """How the agent ended: an exit `code` or a `signal`, never both.

    `lost` means that the shim was killed, so the status is amux's own KILL. `survivors` counts
    processes of the run that could not be ended (set-id programs of another user).
    """

    code: int | None = None
    signal: int | None = None
    lost: bool = False
    survivors: int = 0

    @property
    def shell(self) -> int:
        """Return the status as a shell would: the code, or 128 plus the signal."""
        return self.code if self.code is not None else 128 + (self.signal or 0)

    def __str__(self) -> str:
        """Say it for people."""
        how = f"exit {self.code}" if self.signal is None else f"signal {self.signal}"
        return f"{how} (its shim was killed)" if self.lost else how


class AgentProcess:
    """A running agent. Every method may be called from any thread, and from a signal handler."""

    def __init__(
        self,
        request: SpawnRequest,
        guard: subprocess.Popen[bytes],
        control: socket.socket,
        ends: Ends,
        group: str,
    ) -> None:
        self.request = request
        self.group = group
        """The folder of the run's control group; empty where it has none."""
        self.stdin = ends.our_stdin
        self.stdout = ends.our_stdout
        self.pid = 0
        self.start_time = 0
        self.detached = ""
        """The names of what had detached itself from the agent and ended with the run."""
        self.shim_pid = guard.pid
        self.shim_start_time = start_time(guard.pid)
        self._guard = guard
        self._control = control
        self._control_use = Lent(control.close)
        self._stdin_use = Lent(self._let_go_of_stdin)
        self._terminal = ends.terminal
        self._terminal_use = Lent(self._let_go_of_terminal)
        self._stderr = ends.our_stderr
        self._tail = b""
        self._started = Moment()
        self._ended = Moment()
        self._failure = ""
        self._status: ExitStatus | None = None
        self._callbacks: deque[Callable[[ExitStatus], None]] = deque()
        self._stopped_callback: Callable[[int], None] | None = None
        self._stopped: deque[int] = deque()
        self._ending: ExitStatus | None = None
        self._left: int | None = None
        self._heard = 0.0
        self._thread = threading.Thread(
            target=self._watch, name=f"amux-watch-{guard.pid}", daemon=True
        )

    # --- asking ---

    @property
    def status(self) -> ExitStatus | None:
        """Return how the agent ended; None while it runs."""
        return self._status

    def stderr_tail(self) -> str:
        """Return the last STDERR_TAIL bytes of the agent's stderr, as text."""
        return self._tail.decode("utf-8", "replace")

    @property
    def terminal(self) -> int | None:
        """Return the supervisor's side of the PTY, a descriptor; None without one."""
        return None if self._terminal_use.over else self._terminal

    @contextlib.contextmanager
    def lend_terminal(self) -> Iterator[int | None]:
        """Keep the supervisor's side of the PTY open for the length of the block."""
        with self._terminal_use.use():
            yield self.terminal

    def wait(self, deadline: float | None = None) -> ExitStatus | None:
        """Wait at most `deadline` seconds until the agent and its descendants are gone."""
        self._ended.wait(deadline)
        return self._status

    def on_end(self, callback: Callable[[ExitStatus], None]) -> None:
        """Call back once when the agent has ended, at once if it already has."""
        self._callbacks.append(callback)
        if self._status is None:
            return
        try:
            self._callbacks.remove(callback)
        except ValueError:
            return  # the watching thread has it
        callback(self._status)

    def on_stopped(self, callback: Callable[[int], None]) -> None:
        """Call back with the signal's number when the agent was stopped (INHERIT and PTY)."""
        self._stopped_callback = callback
        self._tell_stopped()

    # --- acting ---

    def signal(self, number: int) -> None:
        """Send a signal to the agent itself; nothing happens if it has ended."""
        self._command(f"signal {int(number)}")

    def signal_group(self, number: int) -> None:
        """Send a signal to the agent's process group, which is the agent's own on PIPES."""
        self._command(f"group {int(number)}")

    def resume(self) -> None:
        """Continue an agent that was stopped on its PTY."""
        self._command("continue")

    def write(self, data: memoryview) -> int:
        """Write what the agent's stdin takes now; return how much. OSError where it is closed."""
        with self._stdin_use.use() as there:
            if self.stdin is None or not there:
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
            try:
                return os.write(self.stdin.fileno(), data)
            except BlockingIOError:
                return 0

    def writable(self, deadline: float) -> None:
        """Wait at most `deadline` seconds until the agent's stdin may take more."""
        with self._stdin_use.use() as there:
            if self.stdin is None or not there:
                return
            descriptor = self.stdin.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        poll.poll(deadline * 1000)

    def close_stdin(self) -> None:
        """Close the agent's stdin, or have it closed by whoever writes to it."""
        self._stdin_use.close()

    def close(self) -> None:
        """Let go of the supervisor's ends of stdio; what the agent still writes is lost."""
        self.close_stdin()
        if self.stdout is not None:
            self.stdout.close()
        self.close_terminal()

    def close_terminal(self) -> None:
        """Close the supervisor's side of the PTY, if there is one."""
        self._terminal_use.close()

    def begin_stop(
        self, *, close: float = CLOSE_GRACE, term: float = TERM_GRACE, kill: float = KILL_GRACE
    ) -> None:
        """Start the ladder (close stdin, TERM, KILL) and return; the shim carries it out.

        A PTY can't be closed for its agent alone: HUP says the same.
        """
        self.close_stdin()
        if self.request.stdio is Stdio.PTY:
            self.signal(signal.SIGHUP)
        self._command(f"stop {_ms(close)} {_ms(term)} {_ms(kill)}")

    def stop(
        self, *, close: float = CLOSE_GRACE, term: float = TERM_GRACE, kill: float = KILL_GRACE
    ) -> ExitStatus:
        """End the agent and its descendants and return how it ended.

        Takes at most `close + term + kill` plus the time that the kernel needs for as long as it
        ends one after the other. If the shim itself does not answer, it is killed, and what is
        left is ended by the run's marks.
        """
        self.begin_stop(close=close, term=term, kill=kill)
        until = time.monotonic() + close + term + 2 * kill + SHIM_GRACE
        while self.wait(until - time.monotonic()) is None:
            until = self._heard + 2 * kill + SHIM_GRACE  # shim or guard is at work
            if until < time.monotonic():
                self._give_up(kill)
                break
        return self._status or ExitStatus(signal=signal.SIGKILL, lost=True)

    def started(self) -> None:
        """Wait until the agent's program was executed; raise what prevented it."""
        if not self._started.wait(START_DEADLINE):
            self._give_up(KILL_GRACE)
            self.close()
            raise AgentFailed(f"the agent was not started within {START_DEADLINE:.0f} s")
        if self._failure:
            self._ended.wait()
            self.close()
            raise _failure(self._failure, self.request, self.stderr_tail())

    def begin(self, message: bytes) -> None:
        """Hand the specification to the shim and start watching."""
        # Where the shim is gone already the watcher sees the end of the socket and reports it.
        with contextlib.suppress(OSError):
            self._control.sendall(message)
        self._thread.start()

    def _give_up(self, deadline: float) -> None:
        """End a run whose shim does not answer; what even KILL does not end is counted."""
        end_marked([self.request.marker], deadline)
        # Not by `Popen`, whose lock the watching thread waits for.
        kill(ProcessKey(pid=self.shim_pid, start=self.shim_start_time), signal.SIGKILL)
        with contextlib.suppress(OSError), self._control_use.use():
            self._control.shutdown(socket.SHUT_RDWR)
        self._ended.wait()

    def _command(self, line: str) -> None:
        """Tell the shim; so short a line is sent as a whole, whoever else sends one."""
        with contextlib.suppress(OSError), self._control_use.use():
            self._control.sendall(line.encode() + b"\n")

    def _let_go_of_stdin(self) -> None:
        if self.stdin is not None:
            self.stdin.close()

    def _let_go_of_terminal(self) -> None:
        if self._terminal is not None:
            os.close(self._terminal)

    # --- the watching thread ---

    def _watch(self) -> None:
        with PollSelector() as selector:
            selector.register(self._control, EVENT_READ)
            if self._stderr is not None:
                selector.register(self._stderr, EVENT_READ)
            pending = b""
            while True:
                ended = False
                for key, _ in selector.select():
                    if key.fileobj is self._control:
                        chunk = self._receive()
                        ended = not chunk
                        pending += chunk
                    elif not self._read_stderr():
                        selector.unregister(key.fileobj)
                while b"\n" in pending:
                    line, _, pending = pending.partition(b"\n")
                    self._hear(os.fsdecode(line))
                if ended:
                    break
        self._finish()

    def _receive(self) -> bytes:
        try:
            return self._control.recv(65536)
        except OSError:
            return b""

    def _read_stderr(self) -> bool:
        assert self._stderr is not None  # noqa: S101  # registered only if it is there
        chunk = os.read(self._stderr.fileno(), 65536)
        if self.request.stderr_copy is not None:
            write_all(self.request.stderr_copy, chunk)
        self._tail = (self._tail + chunk)[-STDERR_TAIL:]
        return bool(chunk)

    def _hear(self, line: str) -> None:
        self._heard = time.monotonic()
        word, _, rest = line.partition(" ")
        if word == "started":
            pid, _, started = rest.partition(" ")
            self.pid, self.start_time = int(pid), int(started)
            self._started.tell()
        elif word == "failed":
            self._failure = rest
        elif word == "gone":
            self._left = int(rest)
        elif word == "left":
            self.detached = rest
        elif word == "stopped":
            self._stopped.append(int(rest))
            self._tell_stopped()
        elif word == "ended":
            kind, number, survivors = rest.split()
            value = int(number)
            self._ending = ExitStatus(
                code=value if kind == "exit" else None,
                signal=value if kind == "signal" else None,
                survivors=int(survivors),
            )

    def _tell_stopped(self) -> None:
        """Call back for each stop that nobody has heard of, once there is somebody."""
        while self._stopped_callback is not None and self._stopped:
            try:
                number = self._stopped.popleft()
            except IndexError:
                return  # another thread tells it
            self._stopped_callback(number)

    def _finish(self) -> None:
        """End what a killed shim left, then tell everybody who waits."""
        self._guard.wait()
        status = self._ending
        if self._left is None or status is None:
            # Whoever was killed may have known processes that only the marks still tell of.
            left = end_marked([self.request.marker], KILL_GRACE)
        else:
            left = end_left(self.request.marker, self.shim_start_time, KILL_GRACE)
        self._left = max(left, self._left or 0)
        if self.group:
            cgroup.remove(self.group)
        if status is None:
            status = ExitStatus(signal=signal.SIGKILL, lost=True, survivors=self._left)
            self._failure = self._failure or "0 the shim was killed before the agent was started"
        status = replace(status, survivors=max(status.survivors, self._left))
        self._drain_stderr()
        self._control_use.close()
        self.close_stdin()
        self._status = status  # from here on nobody counts on this thread to be called back
        self._started.tell()
        self._ended.tell()
        self._call_back(status)

    def _call_back(self, status: ExitStatus) -> None:
        """Call back one after the other; one that raises does not keep the others from it."""
        try:
            callback = self._callbacks.popleft()
        except IndexError:
            return
        try:
            callback(status)
        finally:
            self._call_back(status)

    def _drain_stderr(self) -> None:
        """Read what a pipe can hold; somebody may have its other end, so never wait or go on."""
        if self._stderr is None:
            return
        os.set_blocking(self._stderr.fileno(), False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(PIPE_CHUNKS):
                if not self._read_stderr():
                    break
        self._stderr.close()


def _failure(text: str, request: SpawnRequest, stderr: str) -> LaunchError:
    number, _, what = text.partition(" ")
    program = request.argv[0]
    if request.identity is not None and what.startswith("NotDropped"):
        return IsolationRefused(f"{program} is not started as {request.identity.user}: {what}")
    if int(number) in (errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ENOEXEC):
        as_whom = f" as {request.identity.user}" if request.identity else ""
        return AgentNotFound(f"{program} cannot be started{as_whom} in {request.cwd}: {what}")
    return AgentFailed(f"{program} could not be started: {what}", stderr=stderr)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
