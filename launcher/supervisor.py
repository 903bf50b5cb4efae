"""The Python API for a Runtime: start agents, talk to them, watch them, and end them.

    with Supervisor(home) as supervisor:
        session = supervisor.launch(LaunchRequest(provider="codex", environment=os.environ))
        session.request("turn/start", {...}, deadline=30)
        for event in supervisor.watch():
            ...

Every method may be called from any thread; `close`, `stop` and `begin_stop` from a signal handler
too, whatever that interrupts. A method that waits takes a deadline in seconds; from asyncio call it
through `asyncio.to_thread`, and iterate a watch with `async for`.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from amux.launcher.channel.jsonrpc import JsonRpcChannel
from amux.launcher.errors import (
    BadRequest,
    ChannelError,
    LaunchError,
    SessionNotFound,
    host_errors,
)
from amux.launcher.host import this_host
from amux.launcher.kinds import expect, expect_call, expect_texts, seconds
from amux.launcher.launch import launch
from amux.launcher.process.open_files import raise_open_files
from amux.launcher.process.signal_safe import Moment
from amux.launcher.process.spawn import ExitStatus
from amux.launcher.recovery import Reconciled, recover, settled
from amux.launcher.request import LaunchRequest
from amux.launcher.run import Run
from amux.launcher.session.events import Announcer, Event, EventKind, Watch
from amux.launcher.session.store import Listing, SessionRecord, SessionStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amux.launcher.channel.jsonlines import JsonLinesChannel
    from amux.launcher.channel.jsonrpc import ServerRequestHandler
    from amux.launcher.process.pty import Terminal
    from amux.launcher.report import LaunchReport
    from amux.providers.base import JsonObject, Sighting

__all__ = ["Event", "EventKind", "ExitStatus", "LaunchRequest", "Session", "Supervisor", "Watch"]

CLOSED: Final = "this supervisor is closed"


class Session:
    """One run that this supervisor started. Its channel is the agent's own way to talk."""

    def __init__(self, run: Run) -> None:
        expect("a session's run", run, Run)
        self._run = run
        self._terminals: dict[int, Terminal] = {}
        self._over = Moment()
        self._keeper = threading.get_ident()
        run.process.on_stopped(self._stopped)

    @property
    def id(self) -> str:
        """Return the session's id, for `resume`."""
        return self._run.report.session

    @property
    def report(self) -> LaunchReport:
        """Return what the launch established."""
        return self._run.report

    @property
    def pid(self) -> int:
        """Return the agent's pid."""
        return self._run.process.pid

    @property
    def status(self) -> ExitStatus | None:
        """Return how the agent ended; None while it runs."""
        return self._run.process.status

    def request(self, method: str, params: JsonObject, *, deadline: float) -> JsonObject:
        """Send a JSON-RPC request and return its result."""
        return self._run.channel.request(method, params, deadline=deadline)

    def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Send a JSON-RPC notification."""
        self._run.channel.notify(method, params)

    def send(self, message: JsonObject) -> None:
        """Send one JSON line."""
        self._run.channel.send(message)

    def receive(self, *, deadline: float) -> JsonObject:
        """Return the next JSON line that is not an answer to a request."""
        return self._run.channel.receive(deadline=deadline)

    @property
    def channel(self) -> JsonLinesChannel:
        """Return the structured channel; raise ChannelError in a mode that has none."""
        return self._run.channel

    @property
    def noise(self) -> tuple[str, ...]:
        """Return the lines of the agent's stdout that were skipped, shortened."""
        return self._run.noise

    def send_line(self, line: str) -> None:
        """Send one line of text, to an agent without a structured channel."""
        self._run.lines.send_line(line)

    def receive_line(self, *, deadline: float) -> str:
        """Return the next line of text, from an agent without a structured channel."""
        return self._run.lines.receive_line(deadline=deadline)

    @property
    def terminal(self) -> Terminal:
        """Return the agent's PTY as a pexpect object; raise ChannelError if it has none."""
        from amux.launcher.process.pty import Terminal  # noqa: PLC0415  # only a PTY needs pexpect

        if not self._terminals:
            with self._run.process.lend_terminal() as descriptor:
                if descriptor is None:
                    raise ChannelError("the agent is not on a PTY (LaunchRequest.pty), or is gone")
                self._terminals.setdefault(0, Terminal(descriptor))
        return self._terminals[0]

    def verify(self, *, deadline: float) -> tuple[Sighting, ...]:
        """Ask the agent, between two turns, what its context holds; the record has it too."""
        return self._run.verify(deadline=seconds("deadline", deadline))

    def answer_with(self, handler: ServerRequestHandler) -> None:
        """Answer the agent's own JSON-RPC requests (approvals) with `handler`."""
        expect_call("handler", handler)
        channel = self._run.channel
        if not isinstance(channel, JsonRpcChannel):
            raise ChannelError("this agent asks nothing over its channel")
        channel.handler = handler

    def stderr_tail(self) -> str:
        """Return the end of the agent's stderr."""
        return self._run.process.stderr_tail()

    def wait(self, deadline: float | None = None) -> ExitStatus | None:
        """Wait until the agent and all that it started are gone; None if the deadline passed."""
        if not self._over.wait(None if deadline is None else seconds("deadline", deadline)):
            return None
        return self._run.process.status

    def stop(self) -> ExitStatus:
        """End the agent: close its stdin, TERM, KILL; return how it ended."""
        status = self._run.stop()
        # Not where a signal handler interrupted the thread that is to tell of the end.
        if self._keeper != threading.get_ident():
            self._over.wait()
        return status

    def follow(self, ended: Callable[[Session, ExitStatus], None]) -> None:
        """Call back once the run has ended, at once if it has; then let go, and wake who waits."""
        expect_call("ended", ended)

        def over(status: ExitStatus) -> None:
            ended(self, status)
            self._run.process.close_terminal()
            self._over.tell()

        self._run.on_end(over)
        self._keeper = 0

    def _stopped(self, number: int) -> None:
        """Go on after Ctrl-Z on a PTY: there is no shell that could say `fg`."""
        if number != signal.SIGSTOP:
            self._run.process.resume()

    def begin_stop(self) -> None:
        """Start to stop the agent, and return at once."""
        self._run.process.begin_stop()


class Supervisor:
    """A Runtime's hold on one AMUX_HOME. Opening it ends what an earlier, killed one left.

    `environ` is what `AMUX_HOME` and `AMUX_RUNS` are read from; a given `home` wins.
    """

    def __init__(
        self, home: Path | None = None, *, environ: Mapping[str, str] | None = None
    ) -> None:
        expect("home", home, Path, type(None), example="Path('/srv/amux')")
        if environ is not None:
            expect_texts("environ", environ)
        names = dict(os.environ if environ is None else environ)
        if home is not None:
            names["AMUX_HOME"] = str(home)
        raise_open_files()
        with host_errors("this AMUX_HOME cannot be used"):
            self._host = this_host(names)
            self._store = SessionStore(self._host.home)
        self._announcer = Announcer()
        # Looked at and changed by one step of the interpreter each, so that no lock is needed.
        self._sessions: dict[Session, None] = {}
        self._closed = False
        self.reconciled: tuple[Reconciled, ...] = recover(self._host)

    def launch(self, request: LaunchRequest) -> Session:
        """Start an agent; raise `AmuxError`."""
        expect("request", request, LaunchRequest)
        if self._closed:
            raise BadRequest(CLOSED)
        begun: list[str] = []
        try:
            run = launch(request, self._host, began=begun.append, heard=self._announcer.notice)
        except Exception as error:
            refused = request.session is not None and not begun
            self._announcer.tell(
                EventKind.REFUSED if refused else EventKind.FAILED,
                begun[0] if begun else str(request.session or ""),
                code=getattr(error, "code", LaunchError.code),
                message=str(error),
            )
            raise
        return self._keep(Session(run), run)

    def resume(self, session: str, request: LaunchRequest | None = None) -> Session:
        """Continue a session with what it was started with; `request` adds the rest."""
        expect("session", session, str)
        expect("request", request, LaunchRequest, type(None))
        values = request or LaunchRequest(environment=dict(os.environ))
        return self.launch(replace(values, session=session))

    def session(self, session: str) -> Session:
        """Return a run of this supervisor by its session's id; raise SessionNotFound."""
        expect("session", session, str)
        for one in reversed(self.running()):
            if one.id == session:
                return one
        raise SessionNotFound(f"this supervisor has no run of session {session}")

    def running(self) -> tuple[Session, ...]:
        """Return this supervisor's living runs."""
        return tuple(self._sessions)

    def records(self) -> Listing:
        """Return the records of all sessions of this home, whoever started them."""
        with host_errors("the sessions cannot be listed"):
            return settled(self._store)

    def record(self, session: str) -> SessionRecord:
        """Return one session's record."""
        expect("session", session, str)
        with host_errors(f"session {session} cannot be read"):
            return self._store.load(session)

    def watch(self) -> Watch:
        """Return the events from now on, of every session of this supervisor."""
        return self._announcer.watch()

    def stop(self, session: str) -> ExitStatus:
        """End one run and return how it ended."""
        return self.session(session).stop()

    def close(self) -> None:
        """End every run, all at once, then the watches. Closing twice is the same as once.

        In a signal handler that interrupts a launch, that one ends as soon as the handler is left.
        """
        self._closed = True
        running = self.running()
        for session in running:
            session.begin_stop()
        for session in running:
            session.stop()
        self._announcer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _keep(self, session: Session, run: Run) -> Session:
        self._sessions[session] = None
        self._announcer.tell(EventKind.LAUNCHED, session.id, report=run.report)
        session.follow(self._ended)
        if self._closed:  # while it was being started
            session.stop()
            raise BadRequest(CLOSED)
        return session

    def _ended(self, session: Session, status: ExitStatus) -> None:
        self._sessions.pop(session, None)
        self._announcer.tell(EventKind.ENDED, session.id, status=status)
