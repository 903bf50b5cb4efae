"""A Runtime whose main thread is interrupted at one point of its work: run as a program.

    python -m tests.launcher.interrupted FOLDER HANDLER POINT

The work goes through launches, turns, events, stops and ends. The signal is raised at POINT of the
main thread, and its handler calls HANDLER (close or stop). The program fails if the handler hangs,
or if anything of a run is left. A POINT is

    MODULE:FUNCTION:N   the N-th line that runs in calls of it, such as events:next:2
    N                   the N-th of all lines by first visits, told apart by who called; 0 for none

Where HANDLER is INT or TERM the work is `amux launch`, which gets that signal, and its status is
the program's; whoever started it looks at what is left.

The last line says how many points of the second kind there were, and where the signal came.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from amux.launcher import supervisor as supervision
from amux.launcher.command import main as amux
from amux.launcher.errors import LaunchError, MemoryNotIsolated
from amux.launcher.host import this_host
from amux.launcher.process.run_processes import find_marked
from amux.launcher.request import LaunchRequest
from amux.launcher.session.store import SessionStore
from amux.launcher.supervisor import Supervisor
from amux.providers.base import Mode
from fixtures.scripted_provider import install_scripted_agent, scripted_registry
from tests.launcher.agents_at_work import COMMAND, DEADLINE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

    from amux.launcher.host import Host

ROOT: Final = Path(__file__).parents[2]
ROOMS: Final = f"{ROOT / 'amux'}/"
LOCKED: Final = ("threading.py", "queue.py", "subprocess.py", "contextlib.py")
"""Modules of the standard library whose lines are points too: they hold locks."""


LISTS: Final[Mapping[str, str]] = MappingProxyType({"lists": ""})


class Points:
    """Follows this thread's work, and raises a signal at one point of it."""

    def __init__(self, wanted: str, number: int) -> None:
        self._number = number
        self.reached = ""
        self.seen: set[tuple[str, int, str, int]] = set()
        place, _, count = wanted.rpartition(":")
        self._place = place
        self._left = int(count)
        self._ours: dict[str, bool] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> Points | None:
        """Trace one frame."""
        del argument
        name = frame.f_code.co_filename
        if frame.f_code.co_name == "<module>":
            return None  # a module that loads: many lines, and none that matters
        if name not in self._ours:
            ours = name.startswith(ROOMS) or os.path.basename(name) in LOCKED  # noqa: PTH119
            self._ours[name] = ours
        if not self._ours[name]:
            return None
        if event == "line":
            self._line(frame)
        return self

    def _line(self, frame: FrameType) -> None:
        code, back = frame.f_code, frame.f_back
        caller = (back.f_code.co_filename, back.f_lineno) if back else ("", 0)
        point = (code.co_filename, frame.f_lineno, *caller)
        first = point not in self.seen
        self.seen.add(point)
        if self._place:
            first = self._place == f"{Path(code.co_filename).stem}:{code.co_name}"
        self._left -= first
        if first and self._left == 0:
            self.reached = f"{point[0]}:{point[1]} from {point[2]}:{point[3]}"
            signal.raise_signal(self._number)


def main() -> int:
    """Work, interrupted once; return 0 where all ended and nothing is left."""
    folder, what, wanted = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    # A hang is told with the place of every thread.
    faulthandler.dump_traceback_later(DEADLINE, exit=True)
    if what in HANDLERS:
        return close_in_handler(folder, HANDLERS[what], wanted)
    return interrupt_launch(folder, signal.Signals[f"SIG{what}"], wanted)


def interrupt_launch(folder: Path, number: int, wanted: str) -> int:
    """Run `amux launch` with that signal at a point of it; return its status."""
    from amux.launcher.cli import launch  # noqa: PLC0415  # what is loaded by itself is no point

    launch.this_host = scripted  # type: ignore[attr-defined]
    command = str(install_scripted_agent(folder / "bin"))
    sys.argv = ["amux", "launch", "listing", "--executable", command, "--option", "lists"]
    points = Points(wanted, number)
    sys.settrace(points)
    try:
        return amux()
    finally:
        sys.settrace(None)
        sys.stdout.write(f"{len(points.seen)} points, signal at {points.reached}\n")


def close_in_handler(folder: Path, handler: Callable[[Supervisor], None], wanted: str) -> int:
    """Interrupt a supervisor's work; return 0 where all ended and nothing is left."""
    supervision.this_host = scripted  # type: ignore[attr-defined]
    supervisor = Supervisor(environ={**os.environ, "HOME": str(folder)})
    points = Points(wanted, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, lambda *_: handler(supervisor))
    supervisor.launch(bound(folder))  # so that from the first point on a run has to be ended
    sys.settrace(points)
    try:
        try:
            work(supervisor, folder)
        except LaunchError:  # what a closed supervisor and an ended agent say
            if not points.reached:
                raise
        supervisor.close()
    finally:
        sys.settrace(None)
    left = f"running: {running}" if (running := supervisor.running()) else leftovers(folder)
    sys.stdout.write(left or f"{len(points.seen)} points, signal at {points.reached}\n")
    return 1 if left else 0


def scripted(environ: Mapping[str, str]) -> Host:
    """Return the Runtime, which knows the scripted agents."""
    return replace(this_host(environ), providers=scripted_registry())


def stop_all(supervisor: Supervisor) -> None:
    """Stop each session by itself."""
    for session in supervisor.running():
        session.stop()


HANDLERS: Final[dict[str, Callable[[Supervisor], None]]] = {
    "close": Supervisor.close,
    "stop": stop_all,
}


def work(supervisor: Supervisor, folder: Path) -> None:
    """Do a little of all that a Runtime does."""
    plain = LaunchRequest(
        provider="generic", arguments=(*COMMAND, "--plain"), environment=dict(os.environ)
    )
    with supervisor.watch() as events:
        first = supervisor.launch(bound(folder))
        events.next(DEADLINE)
        second = supervisor.launch(plain)
        second.send_line("hello")
        second.receive_line(deadline=DEADLINE)
        second.stderr_tail()
        screen = supervisor.launch(replace(plain, mode=Mode.TERMINAL, pty=True))
        screen.terminal.sendline(b"hello")
        screen.terminal.expect_exact(b"> hello", timeout=DEADLINE)
        first.send({"ping": 1})
        first.receive(deadline=DEADLINE)
        supervisor.stop(second.id)
        with contextlib.suppress(MemoryNotIsolated):  # an agent that contradicts
            supervisor.launch(bound(folder, provider="scripted", options={"answer": "on"}))
        brief = supervisor.launch(replace(plain, arguments=(*COMMAND, "--exit", "7")))
        brief.wait(DEADLINE)
        while (event := events.next(DEADLINE)) is not None and event.session != brief.id:
            supervisor.running()
        first.wait(0.01)


def bound(
    folder: Path, *, provider: str = "listing", options: Mapping[str, str] = LISTS
) -> LaunchRequest:
    """Ask for an agent with memory, by default one that asks for the list of its tools."""
    return LaunchRequest(
        provider=provider,
        executable=install_scripted_agent(folder / "bin"),
        environment=dict(os.environ),
        options=options,
    )


def leftovers(folder: Path) -> str:
    """Say what is left of the runs of the home below `folder`; empty where nothing is."""
    records = SessionStore(folder / "amux").list().records
    if active := [record.id for record in records if record.active]:
        return f"said to run: {active}"
    if alive := {key: one for key, one in find_marked([r.marker for r in records]).items() if one}:
        return f"alive: {alive}"
    return ""


def interrupt(host: Host, what: str, point: str) -> subprocess.CompletedProcess[str]:
    """Run this module once in the host's home, with a signal at that point."""
    return subprocess.run(
        (sys.executable, "-m", "tests.launcher.interrupted", str(host.home.parent), what, point),
        cwd=ROOT,
        env={**host.environ, "AMUX_RUNS": str(host.runs)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main())
