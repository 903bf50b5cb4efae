"""Start one agent under its shim and hold on to it until nothing of it is left.

This is the only place in amux that starts agents. `spawn` returns when the agent's program has
been executed; a thread then reads the shim's messages and the agent's stderr.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING, BinaryIO, Final

from launcher import shim
from launcher.errors import AgentFailed, AgentNotFound, IsolationRefused
from launcher.processes import MARKER, SHIM_MARKER, end_marked, start_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from materializer.values import Identity

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
STDERR_TAIL: Final = 16 * 1024
"""Bytes of the agent's stderr that are kept."""

KEPT_IGNORED: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)
"""Signals that the agent goes on ignoring where amux was started that way (nohup)."""
STDIO_SHARED: Final = threading.Event()
"""Set once an agent is being started on this process's own stdio: from then Ctrl-C is its own."""
LIBRARY: Final = str(Path(shim.__file__).resolve().parent.parent)
BOOT: Final = f"import sys; sys.path.append({LIBRARY!r}); from launcher.shim import main; main()"


class Stdio(StrEnum):
    """PIPES: to the supervisor. INHERIT: the caller's own, untouched. PTY: a new terminal."""

    PIPES = shim.PIPES
    INHERIT = shim.INHERIT
    PTY = shim.PTY


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnRequest:
    """What to start.

    `environment` is complete: nothing is added but the marker. `identity` None keeps the caller's.
    `hold` are descriptors that the shim keeps open for as long as anything of the run is left (the
    session's lock). `stderr_copy` is a descriptor that the agent's stderr is copied to (PIPES).
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: str
    marker: str
    stdio: Stdio = Stdio.PIPES
    identity: Identity | None = None
    rows: int = 24
    columns: int = 80
    hold: tuple[int, ...] = ()
    stderr_copy: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitStatus:
    """How the agent ended: an exit `code` or a `signal`, never both.

    `lost` means that the shim was killed, so the status is amux's own KILL. `survivors` counts
    descendants that could not be ended (set-id programs of another user).
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
    """A running agent. Every method may be called from any thread."""

    def __init__(  # noqa: PLR0913  # made by `spawn` alone
        self,
        request: SpawnRequest,
        keeper: subprocess.Popen[bytes],
        control: socket.socket,
        *,
        stdin: BinaryIO | None,
        stdout: BinaryIO | None,
        stderr: BinaryIO | None,
        terminal: int | None,
    ) -> None:
        self.request = request
        self.stdin = stdin
        self.stdout = stdout
        self.terminal = terminal
        """The supervisor's side of the PTY, a descriptor; None without one."""
        self.pid = 0
        self.start_time = 0
        self.shim_pid = keeper.pid
        self.shim_start_time = start_time(keeper.pid)
        self._keeper = keeper
        self._control = control
        self._stderr = stderr
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._tail_lock = threading.Lock()
        self._started = threading.Event()
        self._ended = threading.Event()
        self._failure = ""
        self._status: ExitStatus | None = None
        self._callbacks: list[Callable[[ExitStatus], None]] = []
        self._stopped_callback: Callable[[int], None] | None = None
        self._stopped_early = 0
        self._ending: ExitStatus | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(
            target=self._watch, name=f"amux-watch-{keeper.pid}", daemon=True
        )

    # --- asking ---

    @property
    def status(self) -> ExitStatus | None:
        """Return how the agent ended; None while it runs."""
        return self._status

    def stderr_tail(self) -> str:
        """Return the last STDERR_TAIL bytes of the agent's stderr, as text."""
        with self._tail_lock:
            data = b"".join(self._tail)
        return data[-STDERR_TAIL:].decode("utf-8", "replace")

    def wait(self, deadline: float | None = None) -> ExitStatus | None:
        """Wait at most `deadline` seconds until the agent and its descendants are gone."""
        self._ended.wait(deadline)
        return self._status

    def on_end(self, callback: Callable[[ExitStatus], None]) -> None:
        """Call back once when the agent has ended, at once if it already has."""
        with self._lock:
            if self._status is None:
                self._callbacks.append(callback)
                return
        callback(self._status)

    def on_stopped(self, callback: Callable[[int], None]) -> None:
        """Call back with the signal's number when the agent was stopped (INHERIT and PTY)."""
        with self._lock:
            self._stopped_callback = callback
            earlier, self._stopped_early = self._stopped_early, 0
        if earlier:
            callback(earlier)

    # --- acting ---

    def signal(self, number: int) -> None:
        """Send a signal to the agent itself; nothing happens if it has ended."""
        self._command(f"signal {int(number)}")

    def resume(self) -> None:
        """Continue an agent that was stopped on its PTY."""
        self._command("continue")

    def close_stdin(self) -> None:
        """Close the agent's stdin."""
        if self.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self.stdin.close()

    def close(self) -> None:
        """Let go of the supervisor's ends of stdio; what the agent still writes is lost."""
        self.close_stdin()
        if self.stdout is not None:
            self.stdout.close()
        if self.terminal is not None:
            os.close(self.terminal)
            self.terminal = None

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

        Takes at most `close + term + kill` plus the time that the kernel needs. If the shim
        itself does not answer, it is killed, and what is left is ended by the run's marker.
        """
        self.begin_stop(close=close, term=term, kill=kill)
        status = self.wait(close + term + 2 * kill + SHIM_GRACE)
        if status is None:
            self._keeper.kill()
            self._ended.wait()
        return self._status or ExitStatus(signal=signal.SIGKILL, lost=True)

    def started(self) -> None:
        """Wait until the agent's program was executed; raise what prevented it."""
        if not self._started.wait(START_DEADLINE):
            self._keeper.kill()
            self._ended.wait()
            self.close()
            raise AgentFailed(f"the agent was not started within {START_DEADLINE:.0f} s")
        if self._failure:
            self._ended.wait()
            self.close()
            raise _failure(self._failure, self.request)

    def begin(self, message: bytes) -> None:
        """Hand the specification to the shim and start watching."""
        # Where the shim is gone already the watcher sees the end of the socket and reports it.
        with contextlib.suppress(OSError):
            self._control.sendall(message)
        self._thread.start()

    def _command(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self._control.sendall(line.encode() + b"\n")

    # --- the watching thread ---

    def _watch(self) -> None:
        with DefaultSelector() as selector:
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
            with contextlib.suppress(OSError):
                os.write(self.request.stderr_copy, chunk)
        with self._tail_lock:
            self._tail.append(chunk)
            self._tail_size += len(chunk)
            while self._tail and self._tail_size - len(self._tail[0]) >= STDERR_TAIL:
                self._tail_size -= len(self._tail.popleft())
        return bool(chunk)

    def _hear(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "started":
            pid, _, started = rest.partition(" ")
            self.pid, self.start_time = int(pid), int(started)
            self._started.set()
        elif word == "failed":
            self._failure = rest
        elif word == "stopped":
            self._tell_stopped(int(rest))
        elif word == "ended":
            kind, number, survivors = rest.split()
            value = int(number)
            self._ending = ExitStatus(
                code=value if kind == "exit" else None,
                signal=value if kind == "signal" else None,
                survivors=int(survivors),
            )

    def _tell_stopped(self, number: int) -> None:
        with self._lock:
            callback = self._stopped_callback
            if callback is None:
                self._stopped_early = number
        if callback is not None:
            callback(number)

    def _finish(self) -> None:
        """End what a killed shim left, then tell everybody who waits."""
        self._keeper.wait()
        status = self._ending
        if status is None:
            survivors = end_marked(self.request.marker, KILL_GRACE)
            status = ExitStatus(signal=signal.SIGKILL, lost=True, survivors=survivors)
            self._failure = self._failure or "0 the shim was killed before the agent was started"
        self._drain_stderr()
        self._control.close()
        self.close_stdin()
        with self._lock:
            self._status = status
            callbacks, self._callbacks = self._callbacks, []
        self._started.set()
        self._ended.set()
        with contextlib.ExitStack() as every:  # one that raises does not keep the others from it
            for callback in reversed(callbacks):
                every.callback(callback, status)

    def _drain_stderr(self) -> None:
        """Read what is in the pipe; a survivor may hold its other end, so never wait."""
        if self._stderr is None:
            return
        os.set_blocking(self._stderr.fileno(), False)
        with contextlib.suppress(BlockingIOError):
            while self._read_stderr():
                pass
        self._stderr.close()


def spawn(request: SpawnRequest) -> AgentProcess:
    """Start the agent and return once its program was executed.

    Raises AgentNotFound or AgentFailed with what prevented it, IsolationRefused for an identity
    on the caller's terminal.
    """
    if request.identity is not None and request.stdio is Stdio.INHERIT:
        raise IsolationRefused(
            "another user must not get the caller's terminal; use pipes or a new PTY"
        )
    environment = {**request.environment, MARKER: request.marker}
    if request.stdio is Stdio.INHERIT:
        STDIO_SHARED.set()
    ours, theirs = socket.socketpair()
    with theirs, contextlib.ExitStack() as opened:
        opened.callback(ours.close)
        ends = _Ends.make(request, opened)
        keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", BOOT]
            + [str(number) for number in (theirs.fileno(), *request.hold)],
            stdin=ends.stdin,
            stdout=ends.stdout,
            stderr=ends.stderr,
            cwd="/",
            env={SHIM_MARKER: request.marker},
            pass_fds=(theirs.fileno(), *request.hold),
            start_new_session=request.stdio is Stdio.PIPES,
        )
        opened.pop_all()
    ends.close_theirs()
    process = AgentProcess(
        request,
        keeper,
        ours,
        stdin=ends.our_stdin,
        stdout=ends.our_stdout,
        stderr=ends.our_stderr,
        terminal=ends.terminal,
    )
    process.begin(shim.encode(_specification(request, environment)))
    process.started()
    return process


@dataclass(slots=True, kw_only=True)
class _Ends:
    """The two sides of the agent's stdio. None on the agent's side is the caller's own."""

    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None
    our_stdin: BinaryIO | None = None
    our_stdout: BinaryIO | None = None
    our_stderr: BinaryIO | None = None
    terminal: int | None = None

    @classmethod
    def make(cls, request: SpawnRequest, opened: contextlib.ExitStack) -> _Ends:
        """Open what the request needs; `opened` closes it again if the start fails."""
        if request.stdio is Stdio.INHERIT:
            return cls()
        if request.stdio is Stdio.PTY:
            return cls._terminal(request, opened)
        pairs = [os.pipe() for _ in range(3)]
        (stdin, our_stdin), (our_stdout, stdout), (our_stderr, stderr) = pairs
        ends = cls(
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            our_stdin=opened.enter_context(os.fdopen(our_stdin, "wb", buffering=0)),
            our_stdout=opened.enter_context(os.fdopen(our_stdout, "rb", buffering=0)),
            our_stderr=opened.enter_context(os.fdopen(our_stderr, "rb", buffering=0)),
        )
        for descriptor in (stdin, stdout, stderr):
            opened.callback(os.close, descriptor)
            if request.identity is not None:
                # A pipe of another owner could not be opened again as /dev/stderr.
                os.fchown(descriptor, request.identity.uid, request.identity.gid)
        os.set_blocking(our_stdin, False)
        return ends

    @classmethod
    def _terminal(cls, request: SpawnRequest, opened: contextlib.ExitStack) -> _Ends:
        ours, theirs = os.openpty()
        opened.callback(os.close, ours)
        opened.callback(os.close, theirs)
        termios.tcsetwinsize(theirs, (request.rows, request.columns))
        if request.identity is not None:
            os.fchown(theirs, request.identity.uid, request.identity.gid)
            os.fchmod(theirs, 0o600)
        return cls(stdin=theirs, stdout=theirs, stderr=theirs, terminal=ours)

    def close_theirs(self) -> None:
        """Close the agent's side, which the shim holds by now."""
        for descriptor in {self.stdin, self.stdout, self.stderr} - {None}:
            if descriptor is not None:
                os.close(descriptor)


def _specification(request: SpawnRequest, environment: Mapping[str, str]) -> shim.Specification:
    who = request.identity
    return shim.Specification(
        argv=[os.fsencode(argument) for argument in request.argv],
        environment=[os.fsencode(f"{name}={value}") for name, value in environment.items()],
        cwd=os.fsencode(request.cwd),
        stdio=request.stdio.value,
        parent=os.getpid(),
        ignored=[number for number in KEPT_IGNORED if signal.getsignal(number) is signal.SIG_IGN],
        identity=shim.Identity(who.uid, who.gid, who.groups) if who else None,
    )


def _failure(text: str, request: SpawnRequest) -> AgentFailed | AgentNotFound:
    number, _, what = text.partition(" ")
    program = request.argv[0]
    if int(number) in (errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ENOEXEC):
        as_whom = f" as {request.identity.user}" if request.identity else ""
        return AgentNotFound(f"{program} cannot be started{as_whom} in {request.cwd}: {what}")
    return AgentFailed(f"{program} could not be started: {what}")


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
