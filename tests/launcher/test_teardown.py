"""What an agent leaves ends with its run: forks without end, long chains, lost marks, strangers."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
import pytest

from amux.hub.cgroup import own_folder
from amux.launcher.process import cgroup
from amux.launcher.process.run_processes import MARKER, alive, find_marked
from amux.launcher.process.spawn import AgentProcess, ExitStatus, SpawnRequest, spawn
from amux.launcher.process.table import kill_all
from amux.launcher.session.store import SessionStore, State
from amux.materializer.values import Identity
from tests.launcher.agents_at_work import DEADLINE, scripted, written_pid

if TYPE_CHECKING:
    from collections.abc import Iterator

FORKS: Final = (Path(__file__).parents[2] / "fixtures" / "forks.py").read_text(encoding="utf-8")
SECONDS: Final = "60"
"""How long what a test leaves lives by itself, should everything else fail."""
LIMIT: Final = 80
AMUX: Final = (sys.executable, "-m", "amux.launcher.command")
ROOT: Final = Path(__file__).parents[2]


@pytest.fixture
def grouped(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run as where the kernel gives no control group, or as this machine does."""
    if not request.param:
        monkeypatch.setattr(cgroup, "make", lambda _: "")
    return bool(request.param)


@pytest.fixture
def started() -> Iterator[list[AgentProcess]]:
    """Stop at the end of the test whatever it started."""
    processes: list[AgentProcess] = []
    yield processes
    for process in processes:
        process.stop(close=0, term=0.5)
        process.close()


def bomb(uid: int) -> SpawnRequest:
    return SpawnRequest(
        argv=("/usr/bin/python3", "-I", "-S", "-c", FORKS, str(LIMIT), SECONDS),
        environment={"PATH": "/usr/bin:/bin"},
        cwd="/",
        marker=secrets.token_hex(16),
        identity=Identity(user="x", uid=uid, gid=uid, groups=(uid,), home="/", shell=""),
    )


def some_uid() -> int:
    return 61_000 + secrets.randbelow(4_000)


def living(uid: int) -> list[int]:
    """Return the pids of an account's processes that run."""
    found = []
    for process in psutil.process_iter(["uids", "status"]):
        uids, status = process.info["uids"], process.info["status"]
        if uids is not None and uids.real == uid and status != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


@pytest.mark.root
@pytest.mark.usefixtures("grouped")
@pytest.mark.parametrize("grouped", [True, False], ids=["control-group", "without"], indirect=True)
def test_processes_that_go_on_forking_end_with_the_run(started: list[AgentProcess]) -> None:
    """Killed one after the other, those that are left fill the gaps."""
    uid = some_uid()
    started.append(process := spawn(bomb(uid)))
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    assert process.wait(DEADLINE) == ExitStatus(code=0)
    assert living(uid) == []


def test_a_look_that_finds_nobody_counts_as_no_failure_to_kill() -> None:
    """Thousands that end by themselves come and go between two looks; none of them survives."""
    assert kill_all(list, lambda _: False)


def kill_guard_and_shim(process: AgentProcess) -> None:
    """Kill both as if at once: neither gets a chance to act on the other's end."""
    children = f"/proc/{process.shim_pid}/task/{process.shim_pid}/children"
    shim = int(Path(children).read_text(encoding="ascii"))
    for pid in (process.shim_pid, shim):
        os.kill(pid, signal.SIGSTOP)
    for pid in (shim, process.shim_pid):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.usefixtures("grouped")
@pytest.mark.parametrize("grouped", [True, False], ids=["control-group", "without"], indirect=True)
def test_guard_and_shim_killed_at_once_leave_nothing_without_environment_either(
    tmp_path: Path, started: list[AgentProcess]
) -> None:
    file = tmp_path / "pid"
    started.append(process := spawn(scripted("--deaf", "--stripped", str(file))))
    orphan = written_pid(file)
    kill_guard_and_shim(process)
    assert process.wait(DEADLINE) == ExitStatus(signal=signal.SIGKILL, lost=True)
    assert not alive(orphan)


def test_a_process_that_lost_the_environment_is_found_by_the_mark_among_its_limits(
    tmp_path: Path, started: list[AgentProcess]
) -> None:
    """So the next start ends it too where supervisor, guard and shim were killed at once."""
    file = tmp_path / "pid"
    started.append(process := spawn(scripted("--deaf", "--stripped", str(file))))
    orphan = written_pid(file)
    assert Path(f"/proc/{orphan.pid}/environ").read_bytes() == b""
    assert orphan in find_marked([process.request.marker])[process.request.marker]


def test_a_marked_process_outside_of_the_tree_ends_with_the_run(
    started: list[AgentProcess],
) -> None:
    """Such as one that a server of the user's started for the agent, environment and all."""
    started.append(process := spawn(scripted("--deaf")))
    environment = {"PATH": "/usr/bin:/bin", MARKER: process.request.marker}
    with subprocess.Popen(("/bin/sleep", SECONDS), env=environment) as stray:
        assert process.stop(close=0) == ExitStatus(signal=signal.SIGTERM)
        assert stray.wait(DEADLINE) == -signal.SIGKILL


def test_what_a_living_guard_of_the_run_watches_over_is_left_to_it(
    started: list[AgentProcess],
) -> None:
    """The screen of an agent ends before the server beside it, which then ends in its own way."""
    started.append(server := spawn(scripted("--deaf")))
    started.append(screen := spawn(scripted(marker=server.request.marker)))
    assert screen.stop() == ExitStatus(code=0)
    assert server.stop(close=0) == ExitStatus(signal=signal.SIGTERM)


@pytest.mark.root
def test_an_agent_is_born_into_a_group_of_its_runs_and_the_group_goes_with_it(
    started: list[AgentProcess],
) -> None:
    parent = own_folder()
    started.append(process := spawn(scripted("--deaf")))
    if process.group:
        assert Path(process.group).parent == Path(parent)
        pids = Path(f"{process.group}/cgroup.procs").read_text(encoding="ascii").split()
        assert pids == [str(process.pid)]
        assert cgroup.find(process.request.marker) == [process.group]
    process.stop(close=0)
    assert cgroup.find(process.request.marker) == []


# --- survivors ---

WITHOUT_KILL = textwrap.dedent(
    """
    from amux.launcher.process import cgroup
    cgroup.make = lambda name: ""
    from amux.launcher.command import main
    raise SystemExit(main())
    """
)
STRANGER = (
    'rm -f "$HOME/up"; mkfifo "$HOME/up"; setsid setpriv --reuid=$TARGET --clear-groups '
    'sh -c \'echo up; exec sleep 60\' > "$HOME/up" 2>/dev/null & read up < "$HOME/up"; exit 3'
)


@pytest.mark.root
def test_survivors_are_in_the_record_the_event_and_the_last_line_until_a_start_ends_them(
    tmp_path: Path,
) -> None:
    """Root without CAP_KILL stands for an ordinary account: neither may signal everybody."""
    home = tmp_path / "amux"
    uid = some_uid()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "AMUX_HOME": str(home),
        "TARGET": str(uid),
    }
    bare = ("setpriv", "--bounding-set=-kill", "--inh-caps=-kill")
    launch = (sys.executable, "-c", WITHOUT_KILL, "launch", "generic")
    agent = ("--", "sh", "-c", STRANGER)
    told = []
    for option in ((), ("--json",)):
        done = subprocess.run(
            (*bare, *launch, *option, *agent),
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 3, done.stderr
        told.append(done.stderr.splitlines()[-1])
    assert "1 processes of session" in told[0]
    assert json.loads(told[1])["survivors"] == 1
    records = SessionStore(home).list().records
    assert [(one.state, one.exit_code, one.survivors) for one in records] == [
        (State.ENDED, 3, 1)
    ] * 2
    assert len(living(uid)) == 2
    listed = subprocess.run(
        (*AMUX, "sessions", "list"),
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert living(uid) == []
    assert "1 left" not in listed.stdout
    assert [one.survivors for one in SessionStore(home).list().records] == [0, 0]
    assert SessionStore(home).unfinished() == ()
