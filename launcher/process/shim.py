"""The small processes between a supervisor and one agent. Standard library only; run as `main()`.

The shim keeps the service's identity, is a child subreaper, and hands its stdin, stdout and
stderr to the agent by inheritance: no byte passes through it. It ends every descendant when the
agent ends, when the supervisor asks, and when the supervisor dies. Above it stands a guard, the
process that the supervisor started, forked before the rest: a subreaper too, it ends what a
killed shim leaves. A killed guard makes the shim end the run.

Descriptor CONTROL (its number is the only argument) is a stream socket to the supervisor. The
first message is the specification (`encode`), then lines in both directions:

    supervisor:  stop CLOSE TERM KILL   waits in milliseconds, then the next step
                 signal N               send N to the agent
                 group N                send N to its process group (PIPES: it leads one)
                 continue               the caller is in the foreground again
    shim:        started PID STARTTIME
                 left NAMES             what had detached itself, and is being ended
                 failed ERRNO STAGE
                 stopped N              the agent was stopped by signal N
                 ended exit|signal N SURVIVORS
    both:        ending N            fewer are left than before, so go on waiting
    guard:       gone SURVIVORS      the last line; without an `ended` before it the shim was killed

Only cheap modules are imported: one shim runs beside each agent. `_signal` is `signal` without
its enums, and `fcntl` and the identity code are imported where they are needed.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import time

from amux.launcher.process import cgroup, daemons
from amux.launcher.process.exec import (
    DEAF,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    prctl,
    start_agent,
)
from amux.launcher.process.specification import INHERIT, PIPES, PTY, Specification, decode
from amux.launcher.process.teardown import (
    KILL_GRACE,
    RETRY,
    Ending,
    now,
    own_children,
    reap_all,
    send,
)
from amux.procstat import look

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

    from amux.procstat import Process
else:
    import _signal as signal

# Milliseconds.
SUPERVISOR_LOST_GRACE = 2_000
"""Between TERM and KILL for an agent whose supervisor is gone."""
SIGKILL, SIGTERM, SIGCONT = 9, 15, 18
ASK = int(signal.SIGRTMIN) + 5
"""Asks guard and shim to end the run: nobody else's signal, so TERM and HUP may stay ignored."""
LADDER = (SIGTERM, SIGKILL, SIGKILL)


def start_time(pid: int) -> int:
    """Return when the process started, in clock ticks since boot; 0 if it is gone."""
    process = look(pid)
    return 0 if process is None else process.start


def _receive(control: int) -> tuple[Specification, bytes] | None:
    """Read the specification; what follows it is returned too. None: the supervisor is gone."""
    data = b""
    while True:
        length, newline, body = data.partition(b"\n")
        if newline and len(body) >= int(length):
            return decode(body[: int(length)]), body[int(length) :]
        chunk = os.read(control, 65536)
        if not chunk:
            return None
        data += chunk


class Shim:
    """One agent, watched until nothing is left. `parent` is a pidfd of the supervisor, or -1."""

    def __init__(
        self, control: int, parent: int, specification: Specification, pending: bytes
    ) -> None:
        self.control = control
        self.parent = parent
        self.specification = specification
        self.pending = pending
        self.agent = 0
        self.status: int | None = None
        self.supervised = True
        self.asked = False
        self.steps: list[tuple[float, int]] = []
        self.planned = False
        self.detached: set[tuple[int, int]] = set()
        self.wake = _prepare(self._noted, specification.ignored)

    def run(self) -> int:
        """Start the agent, watch it, end what is left, and return the shell's status."""
        if self.specification.stdio == PTY:
            _own_terminal()
        self.agent, number, stage = start_agent(self.specification)
        if not self.agent:
            self._tell(f"failed {number} {stage}")
            return 127
        _let_go((1, 2) if self.specification.stdio == PTY else (0, 1, 2))
        self._tell(f"started {self.agent} {start_time(self.agent)}")
        self._commands()
        while self.status is None:
            self._wait()
        self._tell_left()
        return self._report(self._ending().end())

    def _left(self) -> list[Process]:
        """Return what lost its parent and had detached itself from the agent."""
        specification = self.specification
        session = self.agent if specification.stdio == PIPES else os.getsid(0)
        orphans = [pid for pid in own_children() if pid != self.agent]
        return daemons.find(orphans, session, deaf=signal.SIGHUP in specification.ignored)

    def _tell_left(self) -> None:
        """Name what had detached itself; of a run that was stopped only what had by then.

        What a stopped agent was waiting for is no daemon, and falls to us as its orphan.
        """
        left = self._left()
        if self.planned:
            left = [one for one in left if (one.pid, one.start) in self.detached]
        names = daemons.named(left)
        if names:
            self._tell(f"left {names}")

    def _ending(self) -> Ending:
        def tell(left: int) -> None:
            self._tell(f"ending {left}")

        group = os.fsdecode(self.specification.group)
        return Ending(reap=self._reap, wake=self.wake, group=group, tell=tell)

    def _noted(self, number: int, frame: object) -> None:
        del frame
        if number != signal.SIGCHLD:
            self.asked = True

    def _tell(self, line: str) -> None:
        try:
            os.write(self.control, os.fsencode(line) + b"\n")
        except OSError:
            self._supervisor_lost()

    def _wait(self) -> None:
        """Wait for one event and act on it."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        if self.supervised:
            poll.register(self.control, select.POLLIN)
            if self.parent >= 0:
                poll.register(self.parent, select.POLLIN)
        timeout = max(0, self.steps[0][0] - now()) if self.steps else None
        for descriptor, _ in poll.poll(timeout):
            if descriptor == self.wake:
                os.read(self.wake, 4096)
            elif descriptor == self.parent:
                self._supervisor_lost()
            elif descriptor == self.control:
                self._hear()
        if self.asked:
            self.asked = False
            self._plan(0, SUPERVISOR_LOST_GRACE, KILL_GRACE)
        self._reap()
        while self.status is None and self.steps and self.steps[0][0] <= now():
            self._signal(self.steps.pop(0)[1])

    def _hear(self) -> None:
        try:
            chunk = os.read(self.control, 65536)
        except OSError:
            chunk = b""
        if not chunk:
            self._supervisor_lost()
            return
        self.pending += chunk
        self._commands()

    def _commands(self) -> None:
        while b"\n" in self.pending:
            line, _, self.pending = self.pending.partition(b"\n")
            word, *numbers = line.split()
            if word == b"stop":
                self._plan(*(int(number) for number in numbers))
            elif word == b"signal":
                self._signal(int(numbers[0]))
            elif word == b"group":
                self._signal_group(int(numbers[0]))
            elif word == b"continue":
                self._continue()

    def _supervisor_lost(self) -> None:
        self.supervised = False
        self._plan(0, SUPERVISOR_LOST_GRACE, KILL_GRACE)

    def _plan(self, close: int, term: int, kill: int) -> None:
        """Lay out the ladder: after `close` TERM, after `term` more KILL, then KILL again.

        Asked again, each step keeps the earlier of its two times, and a step taken stays taken.
        """
        first = now() + close
        times = [first, first + term, first + term + kill]
        if self.planned:
            taken = len(times) - len(self.steps)
            times = [min(old, new) for (old, _), new in zip(self.steps, times[taken:], strict=True)]
        else:
            self.detached = {(one.pid, one.start) for one in self._left()}
        self.planned = True
        self.steps = list(zip(times, LADDER[-len(times) :] if times else (), strict=True))

    def _signal(self, number: int) -> None:
        """Signal the agent, which is our unreaped child, so the pid is its own."""
        if self.status is not None or not self.agent:
            return
        try:
            os.kill(self.agent, number)
            if number in (SIGTERM, signal.SIGHUP):
                os.kill(self.agent, SIGCONT)
        except OSError as error:
            if error.errno not in (errno.ESRCH, errno.EPERM):
                raise

    def _signal_group(self, number: int) -> None:
        if self.status is None and self.agent and self.specification.stdio == PIPES:
            send(-self.agent, number)

    def _continue(self) -> None:
        if self.status is None:
            send(-os.getpgid(self.agent), SIGCONT)

    def _reap(self) -> bool:
        """Collect ended children; return whether any are left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if os.WIFSTOPPED(status):
                if pid == self.agent:
                    self._agent_stopped(os.WSTOPSIG(status))
            elif pid == self.agent:
                self.status = status

    def _agent_stopped(self, number: int) -> None:
        """Let whoever started us see the stop, as if the agent had been its child."""
        stdio = self.specification.stdio
        if stdio == PTY:
            self._tell(f"stopped {number}")
        elif stdio == INHERIT:
            # Ctrl-Z stops the whole group, us included, and by now it may be running again.
            time.sleep(RETRY / 1000)
            agent = look(self.agent)
            if agent is not None and agent.state == b"T":
                self._tell(f"stopped {number}")  # the caller stops the job, and us with it

    def _report(self, survivors: int) -> int:
        status = self.status if self.status is not None else 0
        if os.WIFSIGNALED(status):
            self._tell(f"ended signal {os.WTERMSIG(status)} {survivors}")
            return 128 + os.WTERMSIG(status)
        self._tell(f"ended exit {os.WEXITSTATUS(status)} {survivors}")
        return os.WEXITSTATUS(status)


class Guard:
    """The process above the shim: it only waits, and ends what a killed shim leaves."""

    def __init__(self, control: int, specification: Specification) -> None:
        self.control = control
        self.group = os.fsdecode(specification.group)
        self.shim = 0
        self.wake = _prepare(self._noted, specification.ignored)

    def watch(self, shim: int) -> int:
        """Wait for the shim, end what is left of the run, and return the shell's status."""
        self.shim = shim
        _let_go((0, 1, 2))
        _, status = os.waitpid(shim, 0)
        self.shim = 0
        ending = Ending(reap=reap_all, wake=self.wake, group=self.group, tell=self._told)
        survivors = ending.end()
        if self.group:
            cgroup.remove(self.group)
        self._tell("gone", survivors)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def _told(self, left: int) -> None:
        self._tell("ending", left)

    def _tell(self, word: str, number: int) -> None:
        try:  # noqa: SIM105  # contextlib is too heavy here
            os.write(self.control, os.fsencode(f"{word} {number}\n"))
        except OSError:
            pass  # nobody listens any more

    def _noted(self, number: int, frame: object) -> None:
        del frame
        if number != signal.SIGCHLD and self.shim:
            send(self.shim, ASK)


def _prepare(noted: Callable[[int, object], None], ignored: list[int]) -> int:
    """Become a subreaper that survives the keyboard; return a pipe that each signal writes to."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in DEAF:
        signal.signal(number, signal.SIG_IGN)
    for noticed in (int(signal.SIGCHLD), ASK, SIGTERM, int(signal.SIGHUP)):
        if noticed not in ignored:
            signal.signal(noticed, noted)
    return wake


def _own_terminal() -> None:
    """Lead a session on the PTY that is stdin."""
    import fcntl  # noqa: PLC0415  # only a PTY needs it
    import termios  # noqa: PLC0415

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)


def _let_go(descriptors: tuple[int, ...]) -> None:
    """Drop stdio, so that its end is the agent's own end; a session leader keeps its PTY."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(null, descriptor, inheritable=False)
    os.close(null)


def _pidfd(supervisor: int) -> int | None:
    """Return a pidfd of the supervisor, -1 where the kernel has none; None if it is gone."""
    try:
        descriptor = os.pidfd_open(supervisor)
    except OSError as error:
        if error.errno == errno.ESRCH:
            return None
        descriptor = -1  # the end of the socket still tells
    return descriptor if os.getppid() == supervisor else None


def main() -> None:
    """Run guard and shim on the control descriptor that the first argument names.

    The other arguments are descriptors that are held until nothing of the run is left.
    """
    control = int(sys.argv[1])
    for descriptor in sys.argv[1:]:
        os.set_inheritable(int(descriptor), False)  # noqa: FBT003  # os takes no name
    received = _receive(control)
    if received is None:
        os._exit(1)
    specification, pending = received
    parent = _pidfd(specification.parent)
    if parent is None:
        os._exit(1)
    guard = os.getpid()
    watcher = Guard(control, specification)
    shim = os.fork()
    if shim:
        os._exit(watcher.watch(shim))
    watched = Shim(control, parent, specification, pending)
    prctl(PR_SET_PDEATHSIG, ASK)
    if os.getppid() != guard:
        os._exit(1)
    os._exit(watched.run())
