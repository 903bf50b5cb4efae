"""The Python API for Runtimes, at work on scripted agents."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amux.launcher import supervisor as supervision
from amux.launcher.errors import (
    AgentNotFound,
    BadRequest,
    ChannelError,
    DeadlinePassed,
    SessionNotFound,
    SessionRunning,
)
from amux.launcher.host import this_host
from amux.launcher.process.run_processes import ProcessKey, alive, find_marked, start_time
from amux.launcher.process.spawn import ExitStatus
from amux.launcher.request import LaunchRequest
from amux.launcher.session.events import EventKind
from amux.launcher.session.store import State
from amux.launcher.supervisor import Session, Supervisor
from amux.providers.base import Mode
from amux.providers.errors import ProviderFailed
from fixtures.scripted_provider import (
    ScriptedProvider,
    install_scripted_agent,
    scripted_registry,
)
from fixtures.waiting import SECONDS
from tests.launcher.agents_at_work import (
    COMMAND,
    DEADLINE,
    eventually,
    gone,
    kill_tree_above,
    written_pid,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

MANY = 200


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "account"),
        "AMUX_RUNS": str(tmp_path / "runs"),
        "AMUX_HOME": str(tmp_path / "amux"),
    }


@pytest.fixture
def supervisor(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    monkeypatch.setattr(
        supervision,
        "this_host",
        lambda names: replace(this_host(names), providers=scripted_registry()),
    )
    with Supervisor(environ=environ) as one:
        yield one


@pytest.fixture
def scripted(environ: dict[str, str], tmp_path: Path) -> LaunchRequest:
    agent = install_scripted_agent(tmp_path / "bin")
    return LaunchRequest(provider="scripted", environment=environ, executable=agent, cwd=tmp_path)


def request(environ: dict[str, str], *arguments: str, mode: Mode = Mode.STREAM) -> LaunchRequest:
    return LaunchRequest(
        provider="generic",
        arguments=(*COMMAND, *arguments),
        environment=environ,
        mode=mode,
        pty=mode is Mode.TERMINAL,
    )


def test_lines_go_to_the_agent_and_back(supervisor: Supervisor, environ: dict[str, str]) -> None:
    session = supervisor.launch(request(environ, "--plain"))
    session.send_line("hello")
    assert session.receive_line(deadline=DEADLINE) == "> hello"
    assert supervisor.running() == (session,)
    assert supervisor.session(session.id) is session
    assert session.stop() == ExitStatus(code=0)
    assert supervisor.running() == ()
    with pytest.raises(SessionNotFound):
        supervisor.session(session.id)


def test_a_plain_agent_has_no_structured_channel(
    supervisor: Supervisor, environ: dict[str, str]
) -> None:
    session = supervisor.launch(request(environ, "--plain"))
    with pytest.raises(ChannelError, match="no structured channel"):
        session.request("ping", {}, deadline=1)
    with pytest.raises(ChannelError, match="PTY"):
        _ = session.terminal


def test_the_record_follows_the_run(supervisor: Supervisor, environ: dict[str, str]) -> None:
    session = supervisor.launch(request(environ))
    running = supervisor.record(session.id)
    assert running.state is State.RUNNING
    assert {one.role: one.pid for one in running.processes}["agent"] == session.pid
    os.kill(session.pid, signal.SIGKILL)
    assert session.wait(DEADLINE) == ExitStatus(signal=signal.SIGKILL)
    ended = supervisor.record(session.id)
    assert (ended.state, ended.exit_code, ended.exit_signal) == (State.ENDED, None, 9)
    assert ended.processes == ()


def test_events_carry_the_report_and_the_exit_status_or_signal(
    supervisor: Supervisor, environ: dict[str, str]
) -> None:
    with supervisor.watch() as events:
        first = supervisor.launch(request(environ, "--exit", "7"))
        launched, ended = events.next(DEADLINE), events.next(DEADLINE)
        assert launched is not None
        assert ended is not None
        assert (launched.kind, launched.report) == (EventKind.LAUNCHED, first.report)
        assert (ended.kind, ended.status) == (EventKind.ENDED, ExitStatus(code=7))
        assert ended.as_json() | {"at": ""} == {
            "event": "ended",
            "session": first.id,
            "at": "",
            "exit_code": 7,
            "exit_signal": None,
            "lost": False,
            "survivors": 0,
        }
        with pytest.raises(AgentNotFound):
            supervisor.launch(
                LaunchRequest(provider="generic", arguments=("/no/agent",), environment=environ)
            )
        failed = events.next(DEADLINE)
        assert failed is not None
        assert (failed.kind, failed.code) == (EventKind.FAILED, "agent_not_found")
    assert events.next(0) is None
    assert list(events) == []


def test_a_refused_resume_is_not_told_as_a_failure_of_the_living_session(
    supervisor: Supervisor, scripted: LaunchRequest
) -> None:
    with supervisor.watch() as events:
        session = supervisor.launch(scripted)
        assert events.next(DEADLINE) is not None
        again = LaunchRequest(environment=scripted.environment, executable=scripted.executable)
        with pytest.raises(SessionRunning):
            supervisor.resume(session.id, again)
        refused = events.next(DEADLINE)
        assert refused is not None
        assert (refused.kind, refused.session, refused.code) == (
            EventKind.REFUSED,
            session.id,
            "session_running",
        )
        assert refused.as_json()["event"] == "refused"
        assert session.status is None


def test_a_launch_that_fails_after_it_began_names_the_session_whose_record_says_so(
    supervisor: Supervisor, scripted: LaunchRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with supervisor.watch() as events:
        monkeypatch.setattr(ScriptedProvider, "plan", lambda *_: None)
        with pytest.raises(ProviderFailed):
            supervisor.launch(scripted)
        failed = events.next(DEADLINE)
    assert failed is not None
    assert failed.kind is EventKind.FAILED
    assert supervisor.record(failed.session).state is State.FAILED


def test_a_deadline_that_passes_is_told_apart_from_a_broken_channel(
    supervisor: Supervisor, environ: dict[str, str]
) -> None:
    session = supervisor.launch(request(environ, "--plain"))
    with pytest.raises(DeadlinePassed) as caught:
        session.receive_line(deadline=0.01)
    assert caught.value.code == "deadline_passed"
    session.send_line("still there")
    assert session.receive_line(deadline=DEADLINE) == "> still there"


def test_the_channel_and_its_noise_are_the_sessions(
    supervisor: Supervisor, scripted: LaunchRequest
) -> None:
    session = supervisor.launch(replace(scripted, arguments=("--banner", "welcome")))
    session.channel.send({"hello": 1})
    assert session.receive(deadline=DEADLINE) == {"echo": {"hello": 1}}
    assert session.noise == ("welcome",)


def test_a_report_for_people_says_each_lack_once_and_no_empty_version(
    supervisor: Supervisor, environ: dict[str, str]
) -> None:
    report = supervisor.launch(request(environ, "--plain")).report
    lacking = ", ".join(report.missing)
    text = replace(report, unbound=f"generic lacks: {lacking}").as_text()
    assert "agent     generic, stream" in text
    assert text.count("memory protocol") == 1
    assert "missing   memory protocol" in replace(report, unbound="memory is off").as_text()


def test_a_terminal_agent_is_driven_with_pexpect(
    supervisor: Supervisor, environ: dict[str, str]
) -> None:
    session = supervisor.launch(
        LaunchRequest(
            provider="generic",
            arguments=("/bin/sh",),
            environment=environ | {"PS1": "$ "},
            mode=Mode.TERMINAL,
            pty=True,
            rows=31,
            columns=97,
        )
    )
    terminal = session.terminal
    terminal.sendline(b"stty size; test -t 2 && echo screen")
    terminal.expect_exact(b"31 97\r\n", timeout=DEADLINE)
    terminal.expect_exact(b"screen\r\n", timeout=DEADLINE)
    terminal.sendline(b"sh -c 'echo asl''eep; exec sleep 1000'")
    terminal.expect_exact(b"asleep\r\n", timeout=DEADLINE)
    terminal.send(b"\x03")
    terminal.sendline(b"echo back-$((1+1))")
    terminal.expect_exact(b"back-2\r\n", timeout=DEADLINE)
    terminal.sendline(b"echo last''ly; kill -KILL $$")
    assert session.wait(DEADLINE) == ExitStatus(signal=signal.SIGKILL)
    terminal.expect_exact(b"lastly\r\n", timeout=DEADLINE)


def test_an_agent_that_suspends_itself_on_a_pty_goes_on(
    supervisor: Supervisor, environ: dict[str, str]
) -> None:
    """There is no shell that could say `fg`."""
    session = supervisor.launch(
        LaunchRequest(
            provider="generic",
            arguments=("/bin/sh", "-c", "kill -TSTP 0; read line; echo woke"),
            environment=environ,
            mode=Mode.TERMINAL,
            pty=True,
        )
    )
    session.terminal.sendline(b"")
    session.terminal.expect_exact(b"woke\r\n", timeout=DEADLINE)


def test_stopping_hangs_up_a_terminal(supervisor: Supervisor, environ: dict[str, str]) -> None:
    session = supervisor.launch(
        LaunchRequest(
            provider="generic",
            arguments=("/bin/sh",),
            environment=environ,
            mode=Mode.TERMINAL,
            pty=True,
        )
    )
    assert session.stop() == ExitStatus(signal=signal.SIGHUP)
    with pytest.raises(ChannelError, match="gone"):
        _ = session.terminal


def test_asyncio_iterates_the_events_and_can_be_cancelled(
    supervisor: Supervisor, environ: dict[str, str]
) -> None:
    async def main() -> list[EventKind]:
        kinds: list[EventKind] = []
        with supervisor.watch() as events, supervisor.watch() as others:
            waiting = asyncio.create_task(anext(others))
            await asyncio.to_thread(supervisor.launch, request(environ, "--exit", "0"))
            async for event in events:
                kinds.append(event.kind)
                if event.kind is EventKind.ENDED:
                    break
            assert (await waiting).kind is EventKind.LAUNCHED
            idle = asyncio.create_task(anext(events))
            await asyncio.sleep(0)
            idle.cancel()
            with pytest.raises(asyncio.CancelledError):
                await idle
        return kinds

    assert asyncio.run(main()) == [EventKind.LAUNCHED, EventKind.ENDED]


def test_closing_ends_every_run_and_every_watch(environ: dict[str, str]) -> None:
    supervisor = Supervisor(environ=environ)
    sessions = [supervisor.launch(request(environ)) for _ in range(5)]
    events = supervisor.watch()
    supervisor.close()
    supervisor.close()
    assert [session.status for session in sessions] == [ExitStatus(code=0)] * 5
    assert [event.kind for event in events] == [EventKind.ENDED] * 5
    with pytest.raises(BadRequest, match="closed"):
        supervisor.launch(request(environ))


def test_a_session_that_runs_is_not_run_twice(
    supervisor: Supervisor, environ: dict[str, str]
) -> None:
    session = supervisor.launch(request(environ))
    store_folder = Path(environ["AMUX_HOME"]) / "sessions"
    assert [path.stem for path in store_folder.glob("*.lock")] == [session.id]
    session.stop()
    assert list(store_folder.glob("*.lock")) == []


def test_two_hundred_sessions_at_once_from_many_threads(
    supervisor: Supervisor, environ: dict[str, str]
) -> None:
    """Each speaks with its own agent; all end together; nothing of them is left."""

    def talk(number: int) -> Session:
        session = supervisor.launch(
            LaunchRequest(provider="generic", arguments=("/bin/cat",), environment=environ)
        )
        session.send_line(f"this is {number}")
        assert session.receive_line(deadline=SECONDS) == f"this is {number}"
        return session

    with ThreadPoolExecutor(max_workers=16) as pool:
        sessions = list(pool.map(talk, range(MANY)))
    assert len({session.pid for session in sessions}) == MANY
    markers = [supervisor.record(session.id).marker for session in sessions]
    supervisor.close()
    assert {session.status for session in sessions} == {ExitStatus(code=0)}
    assert not any(find_marked(markers).values())
    states = {record.state for record in supervisor.records().records}
    assert states == {State.ENDED}
    assert len(supervisor.records().records) == MANY


def test_more_sessions_than_the_limit_of_open_files_had_room_for(
    environ: dict[str, str],
) -> None:
    script = textwrap.dedent(
        """
        import os, resource
        from amux.launcher.request import LaunchRequest
        from amux.launcher.supervisor import Supervisor
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        def ask(*arguments):
            return LaunchRequest(provider="generic", environment=environ, arguments=arguments)
        environ = dict(os.environ)
        with Supervisor() as supervisor:
            many = [supervisor.launch(ask("/bin/cat")) for _ in range(20)]
            asked = supervisor.launch(ask("/bin/sh", "-c", "ulimit -Sn"))
            print(len(os.listdir("/proc/self/fd")), asked.receive_line(deadline=120))
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    used, agents = (int(word) for word in done.stdout.split())
    assert used > 64
    assert agents == 64


# --- a supervisor that was killed ---

KILLED = textwrap.dedent(
    """
    import os, sys, time
    from amux.launcher.request import LaunchRequest
    from amux.launcher.supervisor import Supervisor
    from tests.launcher.agents_at_work import COMMAND
    supervisor = Supervisor()
    session = supervisor.launch(LaunchRequest(
        provider="generic", environment=dict(os.environ),
        arguments=(*COMMAND, "--deaf", "--orphan", sys.argv[1])))
    shim = next(one for one in supervisor.record(session.id).processes if one.role == "shim")
    print(session.id, session.pid, shim.pid, shim.start, flush=True)
    time.sleep(3600)
    """
)


def killed_supervisor(
    environ: dict[str, str], file: Path, *, and_shim: bool
) -> tuple[str, ProcessKey]:
    """Run a supervisor with one session, kill it (and the shim), return session and orphan."""
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(file)],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        assert process.stdout is not None
        session, *numbers = process.stdout.readline().split()
        pid, guard, start = (int(number) for number in numbers)
        orphan = written_pid(file)
        if and_shim:
            agent = ProcessKey(pid=pid, start=start_time(pid))
            kill_tree_above(agent, ProcessKey(pid=guard, start=start), process)
        process.kill()
    return session, orphan


@pytest.fixture
def stranger() -> Iterator[ProcessKey]:
    """Run a process that has a marker too, but another one."""
    marker = {"AMUX_RUN": secrets.token_hex(16)}
    with subprocess.Popen(["/bin/sleep", "3600"], env=marker) as process:
        yield ProcessKey(pid=process.pid, start=start_time(process.pid))
        process.kill()


def test_the_next_start_ends_what_supervisor_and_shim_left(
    environ: dict[str, str], tmp_path: Path, stranger: ProcessKey
) -> None:
    session, orphan = killed_supervisor(environ, tmp_path / "orphan", and_shim=True)
    assert alive(orphan)
    with Supervisor(environ=environ) as supervisor:
        assert not alive(orphan)
        assert alive(stranger)
        assert [one.record.id for one in supervisor.reconciled] == [session]
        record = supervisor.record(session)
        assert record.state is State.ENDED
        assert "killed" in record.failure
    with Supervisor(environ=environ) as supervisor:
        assert supervisor.reconciled == ()


def test_the_shim_ends_the_run_of_a_killed_supervisor_and_the_session_is_free_again(
    environ: dict[str, str], tmp_path: Path
) -> None:
    session, orphan = killed_supervisor(environ, tmp_path / "orphan", and_shim=False)
    assert gone(orphan)

    def reconciled() -> bool:
        with Supervisor(environ=environ) as supervisor:
            return supervisor.record(session).state is State.ENDED

    assert eventually(reconciled)


def test_a_damaged_record_does_not_keep_a_supervisor_from_opening(
    environ: dict[str, str],
) -> None:
    folder = Path(environ["AMUX_HOME"]) / "sessions"
    folder.mkdir(parents=True, mode=0o700)
    Path(environ["AMUX_HOME"]).chmod(0o700)
    (folder / "abcd.json").write_text("state = [", encoding="utf-8")
    (folder / "abcd.lock").touch()
    with Supervisor(environ=environ) as supervisor:
        assert [one.id for one in supervisor.records().damaged] == ["abcd"]
    assert (folder / "abcd.json").read_text(encoding="utf-8") == "state = ["


def test_a_launch_that_is_overtaken_by_close_leaves_nothing(environ: dict[str, str]) -> None:
    supervisor = Supervisor(environ=environ)
    outcomes: list[object] = []

    def launch() -> None:
        try:
            outcomes.append(supervisor.launch(request(environ)))
        except BadRequest as error:
            outcomes.append(error)

    threads = [threading.Thread(target=launch) for _ in range(8)]
    for thread in threads:
        thread.start()
    supervisor.close()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 8
    assert all(record.state is State.ENDED for record in supervisor.records().records)
    for outcome in outcomes:
        if isinstance(outcome, Session):
            assert outcome.wait(DEADLINE) is not None


# --- the documentation ---

PAGE = Path(__file__).parents[2] / "docs" / "supervisor.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=["threads", "asyncio", "fork"])
def test_the_documented_example_runs(example: str, environ: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        env=environ,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr


def test_the_documented_fork_is_a_session_of_its_own(
    supervisor: Supervisor, scripted: LaunchRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = (one for one in EXAMPLES if "def fork(" in one)
    names: dict[str, Any] = {}
    exec(example, names)  # noqa: S102  # our own page
    assert scripted.executable is not None
    monkeypatch.setenv("PATH", f"{scripted.executable.parent}:{os.environ['PATH']}")
    first = supervisor.launch(scripted)
    first.stop()
    branch: Session = names["fork"](supervisor, first.id)
    assert (supervisor.record(branch.id).state, branch.id != first.id) == (State.RUNNING, True)


def test_every_field_of_a_request_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert [one.name for one in fields(LaunchRequest) if f"`{one.name}`" not in rows] == []
