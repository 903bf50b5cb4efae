"""What an agent starts to live on by itself: told of, and ended with its run."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pexpect
import psutil
import pytest

from amux.launcher.request import LaunchRequest
from amux.launcher.session.events import EventKind
from amux.launcher.session.store import SessionStore
from amux.launcher.supervisor import Session, Supervisor
from fixtures import accounts
from tests.launcher.agents_at_work import DEADLINE, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.launcher.supervisor import Watch

AMUX = (sys.executable, "-m", "amux.launcher.command")
ROOT = Path(__file__).parents[2]
TMUX = "tmux -f /dev/null -S socket new-session -d -s work"
SCREEN = "screen -c /dev/null -dmS amux-test sleep 1000"
WHOLE = "was started in this run and ends with it"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    screens = tmp_path / "screens"
    screens.mkdir(mode=0o700)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "SHELL": "/bin/sh",
        "SCREENDIR": str(screens),
        "AMUX_HOME": str(tmp_path / "amux"),
        "AMUX_RUNS": str(tmp_path / "runs"),
    }


@pytest.fixture
def supervisor(environment: dict[str, str]) -> Iterator[Supervisor]:
    with Supervisor(environ=environment) as one:
        yield one


def running(supervisor: Supervisor, environment: dict[str, str], script: str) -> Session:
    """Launch a shell that runs the script and then waits for a line."""
    request = LaunchRequest(
        provider="generic",
        arguments=("sh", "-c", f"{script}; echo ready; read line"),
        environment=environment,
        cwd=Path(environment["HOME"]),
    )
    session = supervisor.launch(request)
    assert session.receive_line(deadline=DEADLINE) == "ready"
    return session


def warned(events: Watch) -> tuple[str, ...]:
    """Wait for a warning, and return it."""
    while event := events.next(DEADLINE):
        if event.kind is EventKind.WARNED:
            return event.warnings
    raise AssertionError("no warning came")


def tmux(folder: Path, *words: str) -> str:
    """Ask the server of a test."""
    done = subprocess.run(
        ("/usr/bin/tmux", "-S", str(folder / "socket"), *words),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(("script", "called"), [(TMUX, "tmux"), (SCREEN, "screen")])
def test_a_server_of_terminals_is_told_of_while_the_agent_runs(
    supervisor: Supervisor, environment: dict[str, str], script: str, called: str
) -> None:
    with supervisor.watch() as events:
        session = running(supervisor, environment, script)
        (warning,) = warned(events)
    assert warning.startswith(f"{called} (pid ")
    assert WHOLE in warning
    assert session.status is None
    assert supervisor.record(session.id).warnings == (warning,)


def test_what_a_person_attached_to_is_told_of_and_ends_with_the_run_like_the_rest(
    supervisor: Supervisor, environment: dict[str, str], tmp_path: Path
) -> None:
    """Left alive, it would be a way out of the run: an agent can have it attached, too."""
    with supervisor.watch() as events:
        session = running(supervisor, environment, TMUX)
        server = os.pidfd_open(int(tmux(tmp_path, "display-message", "-p", "#{pid}")))
        person = pexpect.spawn(
            "tmux",
            ["-S", str(tmp_path / "socket"), "attach"],
            env={**environment, "TERM": "xterm"},
            encoding="utf-8",
            timeout=DEADLINE,
        )
        try:
            person.sendline("echo here-$((6*7))")
            person.expect_exact("here-42")
            (warning,) = warned(events)
            assert f"(pid {tmux(tmp_path, 'display-message', '-p', '#{pid}')})" in warning
            session.stop()
            person.expect(pexpect.EOF)
        finally:
            person.close(force=True)
    assert select.select([server], [], [], 0)[0], "the server outlived its run"
    os.close(server)


def test_of_several_servers_one_is_told_of(
    supervisor: Supervisor, environment: dict[str, str]
) -> None:
    with supervisor.watch() as events:
        session = running(supervisor, environment, f"{TMUX}; {SCREEN}")
        warned(events)
        session.stop()
        supervisor.close()
        later = [text for event in events for text in event.warnings]
    assert not [text for text in later if WHOLE in text]


def test_a_server_that_was_there_before_is_the_persons_and_lives_on(
    supervisor: Supervisor, environment: dict[str, str], tmp_path: Path
) -> None:
    subprocess.run(TMUX.split(), env=environment, cwd=tmp_path, check=True)
    try:
        session = running(supervisor, environment, "tmux -S socket new-window -d -n agents")
        session.stop()
        assert tmux(tmp_path, "list-windows", "-F", "#W").splitlines()[-1] == "agents"
        assert supervisor.record(session.id).warnings == ()
    finally:
        tmux(tmp_path, "kill-server")


@pytest.fixture(params=["own", pytest.param("isolated", marks=pytest.mark.root)])
def options(request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """Give what launches on one's own account, and as another one."""
    if request.param == "own":
        yield ()
        return
    with accounts.account() as account:
        yield ("--user", account.name)


def test_the_command_tells_of_it_in_a_line_while_the_agent_runs(
    environment: dict[str, str], options: tuple[str, ...]
) -> None:
    with accounts.reachable_folder() as place:
        script = f"cd $HOME && {TMUX}; read line"
        with subprocess.Popen(
            (*AMUX, "launch", "generic", *options, "--", "sh", "-c", script),
            env={**environment, "AMUX_HOME": f"{place}/amux", "AMUX_RUNS": f"{place}/runs"},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("amux: warning: tmux (pid ")
            assert WHOLE in line
            assert process.poll() is None
            (record,) = SessionStore(place / "amux").list().records
            assert f"amux: warning: {record.warnings[0]}\n" == line
            process.communicate("\n", timeout=DEADLINE)
        assert process.returncode == 0


DETACHED = "detached from the agent, and ended with its run: "


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Give a folder of programs that sleep, each under a name of its own."""
    for name in ("by-setsid", "by-nohup", "in-session", "waited-for"):
        (tmp_path / name).symlink_to("/bin/sleep")
    return tmp_path


def started(session: Session, *names: str) -> bool:
    """Wait until programs of these names run in the agent's tree, or below its shim."""
    shim = psutil.Process(session.pid).parent()
    assert shim is not None
    return eventually(lambda: set(names) <= {one.name() for one in shim.children(recursive=True)})


def test_what_left_the_agents_session_is_named_as_it_ends_with_the_run(
    supervisor: Supervisor, environment: dict[str, str], programs: Path
) -> None:
    script = "setsid ./by-setsid 1000 & nohup ./by-nohup 1000 2>nohup & ./in-session 1000 &"
    with supervisor.watch() as events:
        session = running(supervisor, environment, f"cd {programs}; {script} :")
        assert started(session, "by-setsid", "by-nohup", "in-session")
        session.send_line("end")
        (warning,) = warned(events)
    head, _, _ = warning.partition(";")
    assert set(head.removeprefix(DETACHED).split(", ")) == {"by-setsid", "by-nohup"}
    assert session.wait(DEADLINE) is not None
    assert supervisor.record(session.id).warnings == (warning,)


def test_what_a_stopped_agent_was_waiting_for_is_no_daemon(
    supervisor: Supervisor, environment: dict[str, str], programs: Path
) -> None:
    request = LaunchRequest(
        provider="generic",
        arguments=("sh", "-c", "(setsid ./by-setsid 1000 &); setsid ./waited-for 1000; :"),
        environment=environment,
        cwd=programs,
    )
    session = supervisor.launch(request)
    assert started(session, "by-setsid", "waited-for")
    session.stop()
    (warning,) = supervisor.record(session.id).warnings
    assert warning.startswith(f"{DETACHED}by-setsid;")


def test_what_only_ends_late_is_not_named(
    supervisor: Supervisor, environment: dict[str, str], programs: Path
) -> None:
    session = running(supervisor, environment, f"cd {programs}; ./in-session 1000 & :")
    assert started(session, "in-session")
    session.send_line("end")
    assert session.wait(DEADLINE) is not None
    assert supervisor.record(session.id).warnings == ()


def test_a_name_that_would_write_on_the_terminal_does_not(
    supervisor: Supervisor, environment: dict[str, str]
) -> None:
    rename = "open('/proc/self/comm', 'wb').write(b'a\\x1b[2J\\xff')"
    program = f"import os, time; os.setsid(); {rename}; print(1, flush=True); time.sleep(1000)"
    script = f'/usr/bin/python3 -c "{program}" > told & until test -s told; do :; done'
    session = running(supervisor, environment, script)
    session.send_line("end")
    assert session.wait(DEADLINE) is not None
    (warning,) = supervisor.record(session.id).warnings
    assert warning.startswith(f"{DETACHED}a?[2J?;")


def test_the_last_line_of_the_command_names_it(
    environment: dict[str, str], options: tuple[str, ...]
) -> None:
    with accounts.reachable_folder() as place:
        script = f"cd $HOME && {TMUX} && exit 3"
        done = subprocess.run(
            (*AMUX, "launch", "generic", *options, "--", "sh", "-c", script),
            env={**environment, "AMUX_HOME": f"{place}/amux", "AMUX_RUNS": f"{place}/runs"},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 3, done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"amux: warning: {DETACHED}tmux: server;")
