"""The Hub of this machine as a process: start on demand, status, stop.

A Hub that is started here belongs to nobody's run: it is forked away from the caller with
cwd `/`, an environment of its own and a log file, outside the caller's control group where the
system lets it, and runs until `stop`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from amux.hub import config
from amux.hub.enrolment import enrol_local, remote_connection
from amux.hub.errors import HomeRefused, NotStarted
from amux.hub.holder import Holder, process_start, read_holder
from amux.hub.home import PRIVATE_FILE, open_private_folder, private_socket
from amux.hub.placement import LEAVE, Placed, find_manager, remove
from amux.hub.stopmark import STOPPED, is_marked, set_mark
from amux.hub.unixsocket import connect, is_listened_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from amux.hub.config import SettingValue

READY: Final = "ready"
TAKEN: Final = "taken: "
START_SECONDS: Final = 20.0
STOP_SECONDS: Final = 20.0
ANSWER_SECONDS: Final = 2.0
"""For a place in the queue of a socket, which takes thousands of callers that wait."""
_POLL_SECONDS: Final = 0.02
_KEPT: Final = ("HOME", "USER", "LOGNAME", "AMUX_RUNS")
_INSIDE_RUN: Final = ("AMUX_RUN", "AMUX_CONNECTION", "AMUX_MEMORY_BINDING")
# Forks once more, so that the Hub is nobody's child and leaves no zombie with a supervisor.
_DETACH: Final = (
    "import os,sys\nos.setsid()\nif os.fork(): os._exit(0)\nos.execv(sys.argv[1], sys.argv[1:])\n"
)


@dataclass(frozen=True, slots=True)
class Started:
    """A Hub answers: its process as far as it is known, and whether this call started it."""

    holder: Holder | None
    fresh: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HubStatus:
    """What is known of this home's Hub from outside; `activated`: a service manager listens."""

    holder: Holder | None
    answers: bool
    log: Path
    activated: bool
    configured: Mapping[str, SettingValue]

    @property
    def running(self) -> bool:
        """Say whether a Hub process holds the root."""
        return self.holder is not None

    @property
    def restart_needed(self) -> bool:
        """Say whether the file differs from what the running Hub started with."""
        return any(
            running is not None and running != configured
            for running, configured in self.settings().values()
        )

    def settings(self) -> dict[str, tuple[SettingValue | None, SettingValue]]:
        """Return each setting's running value (None when no Hub runs) and configured value."""
        running = {} if self.holder is None else self.holder.settings
        return {key: (running.get(key), value) for key, value in self.configured.items()}

    def as_json(self) -> dict[str, object]:
        """Return the status as JSON fields, without secrets."""
        return {
            "running": self.running,
            "answers": self.answers,
            "hub": None if self.holder is None else self.holder.as_json(),
            "log": str(self.log),
            "activated": self.activated,
            "settings": {
                key: {"running": running, "configured": configured}
                for key, (running, configured) in self.settings().items()
            },
            "restart_needed": self.restart_needed,
        }


def hub_status(home: Path) -> HubStatus:
    """Look at this home's Hub without starting it. Raises ConfigRefused."""
    holder = read_holder(home)
    return HubStatus(
        holder=holder,
        answers=holder is not None and answers(home),
        log=log_path(home),
        activated=is_listened_at(private_socket(home)),
        configured=config.load(home).values(),
    )


def answers(home: Path) -> bool:
    """Say whether a Hub of this very home accepts connections on its private socket."""
    with contextlib.suppress(OSError):
        connect(private_socket(home), seconds=ANSWER_SECONDS).close()
        return read_holder(home, living=False) is not None
    return False


def ensure_running(
    home: Path,
    environ: Mapping[str, str],
    *,
    seconds: float = START_SECONDS,
    unasked: bool = False,
) -> Started:
    """Start the local Hub unless one answers; of many at once one starts it, all wait for it.

    `home` is the value of `open_home`; `unasked` starts none where it was stopped on purpose.
    Raises NotStarted with what has to be mended, also when called inside a run of amux: a Hub
    there would end with it.
    """
    if answers(home):
        return Started(read_holder(home), fresh=False)
    for name in _INSIDE_RUN:
        if name in environ:
            raise NotStarted(f"no Hub answers, and inside a run ({name} is set) none is started")
    remote = remote_connection(home)
    if remote is not None:
        raise NotStarted(f"this home uses the Hub at {remote.url}, so none is started here")
    enrol_local(home)
    deadline = time.monotonic() + seconds
    with _starting(home, deadline):
        if answers(home):
            return Started(read_holder(home), fresh=False)
        if unasked and is_marked(home):
            raise NotStarted(STOPPED)
        if _await_activated(home, deadline):
            return Started(read_holder(home), fresh=False)
        outcome = _start(home, environ, deadline, unasked=unasked)
        if outcome.startswith(TAKEN):
            _wait_for_socket(home, deadline, outcome.removeprefix(TAKEN))
            return Started(read_holder(home), fresh=False)
        if outcome != READY:
            raise NotStarted(f"the Hub did not start: {outcome}")
    return Started(read_holder(home), fresh=True)


def stop_hub(home: Path, *, seconds: float = STOP_SECONDS) -> bool:
    """Ask the running Hub to stop and wait until it has; False when none runs.

    No launch that still runs starts it again, until somebody starts one. Raises
    NotStarted when it does not stop in time, or belongs to another account.
    """
    set_mark(home)
    holder = read_holder(home)
    return holder is not None and end_hub(holder, seconds=seconds)


def end_hub(holder: Holder, *, seconds: float) -> bool:
    """Ask this Hub to stop and wait until it has; False when it has gone. Raises NotStarted."""
    try:
        descriptor = os.pidfd_open(holder.pid)
    except ProcessLookupError:
        return False
    try:
        # The descriptor holds one process; only now is it sure that it is the right one.
        if process_start(holder.pid) != holder.start:
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(seconds * 1000):
            raise NotStarted(f"the Hub (process {holder.pid}) did not stop in {seconds:g} seconds")
    except PermissionError as error:
        raise NotStarted(f"the Hub (process {holder.pid}) belongs to another account") from error
    except ProcessLookupError:
        return True
    finally:
        os.close(descriptor)
    remove(holder.group)
    return True


def log_path(home: Path) -> Path:
    """Return the log of a Hub that was started on demand."""
    return home / "logs" / "hub.log"


@contextlib.contextmanager
def _starting(home: Path, deadline: float) -> Iterator[None]:
    """Hold the right to start; whoever waits here in vain until the deadline gives up."""
    descriptor = os.open(
        home / ".start.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE
    )
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise NotStarted("another start of the Hub takes too long") from None
                if answers(home):
                    break
                time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _start(home: Path, environ: Mapping[str, str], deadline: float, *, unasked: bool) -> str:
    """Fork a Hub away and return what it says about its start."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    log = _open_log(home)
    program = [sys.executable, "-P", "-m", "amux.hub.server", "--ready-fd", str(write_end)]
    program += ["--log", str(log_path(home)), *(["--unasked"] if unasked else []), "--placed"]
    variables = _environment(home, environ)
    manager = find_manager(environ)
    if manager is None:
        program.append(LEAVE)
    else:
        program = manager.wrapped([*program, Placed.SCOPE])
        variables |= manager.variables
    try:
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", _DETACH, *program],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=variables,
            pass_fds=(write_end,),
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        os.close(read_end)
        raise NotStarted(f"cannot start {sys.executable}") from error
    finally:
        os.close(write_end)
        os.close(log)
    try:
        return _outcome(read_end, deadline) or f"it ended without a word; see {log_path(home)}"
    finally:
        os.close(read_end)


def _outcome(read_end: int, deadline: float) -> str:
    said = b""
    poll = select.poll()
    poll.register(read_end, select.POLLIN)
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return "it takes too long"
        part = os.read(read_end, 4096)
        if not part:
            return said.decode(errors="replace")
        said += part


def _environment(home: Path, environ: Mapping[str, str]) -> dict[str, str]:
    kept = {name: environ[name] for name in _KEPT if name in environ}
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        **kept,
        "AMUX_HOME": str(home),
    }


def _open_log(home: Path) -> int:
    """Open the log for what the process says before and beside its own log lines."""
    path = log_path(home)
    open_private_folder(path.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, PRIVATE_FILE)
    except OSError as error:
        raise HomeRefused(f"cannot open {path}: {error.strerror}") from error


def _await_activated(home: Path, deadline: float) -> bool:
    """Wait for the Hub that a service manager starts at a call; False where none listens.

    The manager was called when it was looked whether a Hub answers. A second Hub would take its
    place from it.
    """
    while is_listened_at(private_socket(home)):
        if read_holder(home) is not None and answers(home):
            return True
        if time.monotonic() >= deadline:
            raise NotStarted(
                f"a service manager listens at {private_socket(home)}, and the Hub that it should "
                "start does not answer; see: systemctl --user status 'amux-hub-*'"
            )
        time.sleep(_POLL_SECONDS)
    return False


def _wait_for_socket(home: Path, deadline: float, reason: str) -> None:
    while not answers(home):
        if time.monotonic() >= deadline:
            raise NotStarted(f"{reason}, and it does not answer")
        time.sleep(_POLL_SECONDS)
