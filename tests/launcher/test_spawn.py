"""The shim and its supervisor's side: start, stop, and who survives what. Nobody."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amux.launcher.errors import AgentNotFound, BadRequest, IsolationRefused
from amux.launcher.process.run_processes import ProcessKey, alive, find_marked, start_time
from amux.launcher.process.spawn import (
    BOOT,
    STDERR_TAIL,
    AgentProcess,
    ExitStatus,
    SpawnRequest,
    Stdio,
    spawn,
)
from amux.materializer.values import Identity
from fixtures.accounts import STRANGER
from fixtures.waiting import SECONDS
from tests.launcher.agents_at_work import (
    COMMAND,
    DEADLINE,
    eventually,
    gone,
    kill_tree_above,
    remove_groups,
    scripted,
    written_pid,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def started() -> Iterator[list[AgentProcess]]:
    """Stop at the end of the test whatever it started."""
    processes: list[AgentProcess] = []
    yield processes
    for process in processes:
        process.stop(close=0, term=0.5)
        process.close()


def key_of(process: AgentProcess) -> ProcessKey:
    return ProcessKey(pid=process.pid, start=process.start_time)


def shim_of(process: AgentProcess) -> ProcessKey:
    return ProcessKey(pid=process.shim_pid, start=process.shim_start_time)


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_an_exit_status_comes_back(code: int, started: list[AgentProcess]) -> None:
    started.append(process := spawn(scripted("--exit", str(code))))
    assert process.wait(DEADLINE) == ExitStatus(code=code)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGHUP])
def test_a_fatal_signal_comes_back(number: int, started: list[AgentProcess]) -> None:
    started.append(process := spawn(scripted("--die", str(int(number)))))
    status = process.wait(DEADLINE)
    assert status == ExitStatus(signal=number)
    assert status.shell == 128 + number


def test_bytes_pass_through_untouched(started: list[AgentProcess]) -> None:
    started.append(
        process := spawn(
            SpawnRequest(argv=("/bin/cat",), environment={}, cwd="/", marker="feed" * 8)
        )
    )
    assert process.stdin is not None
    assert process.stdout is not None
    data = bytes(range(256)) * 64
    process.stdin.write(data)
    process.close_stdin()
    assert process.stdout.read() == data


def test_only_the_agent_holds_its_stdio(started: list[AgentProcess]) -> None:
    """The shim keeps no end open, so an agent that closes stdout is seen to."""
    started.append(process := spawn(scripted("--close-stdout")))
    assert process.stdout is not None
    assert process.stdout.read() == b""
    assert process.status is None
    assert process.stop(close=0, term=5) == ExitStatus(signal=signal.SIGTERM)


def test_the_agent_gets_the_given_environment_and_the_marker_alone(
    tmp_path: Path, started: list[AgentProcess]
) -> None:
    file = tmp_path / "environment"
    request = scripted(
        "--environment", str(file), "--exit", "0", environment={"LANG": "C.UTF-8", "Ä": "ö=\n"}
    )
    started.append(process := spawn(request))
    process.wait(DEADLINE)
    seen = json.loads(file.read_text(encoding="utf-8"))
    seen.pop("LC_CTYPE", None)  # Python's own coercion
    assert seen == {"LANG": "C.UTF-8", "Ä": "ö=\n", "AMUX_RUN": request.marker}


def test_the_agent_inherits_no_descriptor_and_no_ignored_signal(
    started: list[AgentProcess], tmp_path: Path
) -> None:
    leak = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(leak, True)  # noqa: FBT003  # os takes no name
    script = "ls /proc/self/fd | wc -l; grep -E 'SigIgn|SigBlk' /proc/self/status"
    request = SpawnRequest(
        argv=("/bin/sh", "-c", script), environment={}, cwd="/", marker="ab" * 16, hold=(leak,)
    )
    try:
        started.append(process := spawn(request))
        assert process.stdout is not None
        count, *masks = process.stdout.read().decode().splitlines()
    finally:
        os.close(leak)
    assert int(count) == 4  # three, and the one that lists them
    # 32 and 33 are the C library's own: nobody can reset them, and some parents ignore them.
    reserved = 1 << 31 | 1 << 32
    assert [int(mask.split()[1], 16) & ~reserved for mask in masks] == [0, 0]


def test_a_missing_program_is_an_error_that_names_it() -> None:
    request = SpawnRequest(argv=("/no/such/agent",), environment={}, cwd="/", marker="cd" * 16)
    with pytest.raises(AgentNotFound, match="/no/such/agent"):
        spawn(request)


def test_a_missing_working_folder_is_an_error_that_names_it() -> None:
    with pytest.raises(AgentNotFound, match="/no/such/folder"):
        spawn(scripted(cwd="/no/such/folder"))


def test_another_user_never_gets_the_callers_terminal() -> None:
    someone = Identity(user="x", uid=12345, gid=12345, groups=(), home="/", shell="")
    request = SpawnRequest(
        argv=COMMAND,
        environment={},
        cwd="/",
        marker="ef" * 16,
        identity=someone,
        stdio=Stdio.INHERIT,
    )
    with pytest.raises(IsolationRefused, match="terminal"):
        spawn(request)


def test_the_shim_imports_nothing_heavy() -> None:
    """There is one beside each agent."""
    heavy = "{'typing', 're', 'enum', 'json', 'dataclasses', 'signal', 'socket', 'subprocess'}"
    code = f"{BOOT.partition('; main()')[0]}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


# --- stopping ---


def test_an_agent_that_ends_with_its_stdin_is_not_signalled(started: list[AgentProcess]) -> None:
    started.append(process := spawn(scripted()))
    assert process.stop() == ExitStatus(code=0)


def test_an_agent_that_outlives_its_stdin_gets_term(started: list[AgentProcess]) -> None:
    started.append(process := spawn(scripted("--deaf")))
    assert process.stop(close=0.2) == ExitStatus(signal=signal.SIGTERM)


def test_an_agent_that_ignores_term_is_killed(started: list[AgentProcess]) -> None:
    started.append(process := spawn(scripted("--deaf", "--ignore-term", "--banner", "ready")))
    assert process.stdout is not None
    process.stdout.read(6)
    assert process.stop(close=0.1, term=0.2) == ExitStatus(signal=signal.SIGKILL)


def test_a_stopped_agent_is_ended_too(started: list[AgentProcess]) -> None:
    started.append(process := spawn(scripted("--deaf")))
    os.kill(process.pid, signal.SIGSTOP)
    assert process.stop(close=0, term=5) == ExitStatus(signal=signal.SIGTERM)


def test_stopping_twice_and_from_many_threads_gives_one_answer(
    started: list[AgentProcess],
) -> None:
    started.append(process := spawn(scripted("--deaf")))
    answers: list[ExitStatus] = []
    threads = [
        threading.Thread(target=lambda: answers.append(process.stop(close=0.1))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [ExitStatus(signal=signal.SIGTERM)] * 8
    assert process.stop() == answers[0]


def test_asking_again_never_puts_the_end_off(started: list[AgentProcess]) -> None:
    started.append(process := spawn(scripted("--deaf", "--ignore-term", "--banner", "ready")))
    assert process.stdout is not None
    process.stdout.read(6)
    process.begin_stop(close=0, term=0.3)
    for _ in range(3):
        process.begin_stop(close=3600, term=3600)
    assert process.wait(SECONDS) == ExitStatus(signal=signal.SIGKILL)


def test_the_end_is_told_once_also_to_who_asks_late(started: list[AgentProcess]) -> None:
    told: list[ExitStatus] = []
    heard = threading.Event()
    started.append(process := spawn(scripted("--exit", "7")))
    process.on_end(told.append)
    process.on_end(lambda _: heard.set())
    assert heard.wait(DEADLINE)
    process.on_end(told.append)
    assert told == [ExitStatus(code=7)] * 2


def test_a_flood_on_stderr_neither_blocks_nor_grows(started: list[AgentProcess]) -> None:
    started.append(process := spawn(scripted("--flood", "8000000", "--exit", "0")))
    assert process.wait(DEADLINE) == ExitStatus(code=0)
    tail = process.stderr_tail()
    assert tail.endswith("the last words\n")
    assert len(tail) <= STDERR_TAIL


# --- no survivor ---


@pytest.mark.parametrize("option", ["--orphan", "--stripped"])
def test_an_orphan_in_its_own_session_ends_with_the_agent(
    option: str, tmp_path: Path, started: list[AgentProcess]
) -> None:
    file = tmp_path / "pid"
    started.append(process := spawn(scripted(option, str(file), "--exit", "0")))
    assert process.wait(DEADLINE) == ExitStatus(code=0)
    assert not alive(written_pid(file))


@pytest.mark.parametrize("option", ["--orphan", "--stripped"])
def test_an_orphan_ends_when_the_agent_is_killed(
    option: str, tmp_path: Path, started: list[AgentProcess]
) -> None:
    file = tmp_path / "pid"
    started.append(process := spawn(scripted(option, str(file))))
    orphan = written_pid(file)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(DEADLINE) == ExitStatus(signal=signal.SIGKILL)
    assert not alive(orphan)


def shim_below(process: AgentProcess) -> int:
    """Return the pid of the process between the guard (`shim_pid`) and the agent."""
    path = f"/proc/{process.shim_pid}/task/{process.shim_pid}/children"
    return int(Path(path).read_text(encoding="ascii"))


@pytest.mark.parametrize("option", ["--orphan", "--stripped"])
@pytest.mark.parametrize("victim", ["guard", "shim"])
def test_nothing_survives_a_killed_guard_or_shim(
    victim: str, option: str, tmp_path: Path, started: list[AgentProcess]
) -> None:
    """Not even a process that left the session and has no marker: the other one has it."""
    file = tmp_path / "pid"
    started.append(process := spawn(scripted("--deaf", option, str(file))))
    orphan, agent = written_pid(file), key_of(process)
    os.kill(process.shim_pid if victim == "guard" else shim_below(process), signal.SIGKILL)
    status = process.wait(DEADLINE)
    assert status is not None
    assert status.signal == (signal.SIGTERM if victim == "guard" else signal.SIGKILL)
    assert status.lost == (victim == "shim")
    assert not alive(agent)
    assert not alive(orphan)


def test_guard_and_shim_killed_at_once_leave_nothing_that_is_marked(
    tmp_path: Path, started: list[AgentProcess]
) -> None:
    file = tmp_path / "pid"
    started.append(process := spawn(scripted("--orphan", str(file))))
    orphan, agent, shim = written_pid(file), key_of(process), shim_below(process)
    for pid in (process.shim_pid, shim):
        os.kill(pid, signal.SIGSTOP)
    for pid in (shim, process.shim_pid):
        os.kill(pid, signal.SIGKILL)
    assert process.wait(DEADLINE) == ExitStatus(signal=signal.SIGKILL, lost=True)
    assert not alive(agent)
    assert not alive(orphan)


@pytest.mark.parametrize(
    ("argv", "environment"),
    [
        (("/bin/true", "a\0b"), {}),
        (("/bin/true",), {"A\0B": "x"}),
        (("/bin/true",), {"A": "x\0LD_PRELOAD=/evil.so"}),
        (("/bin/true",), {"A=B": "x"}),
        (("/bin/true",), {"": "x"}),
        (("/bin/true", "\ud800"), {}),
        ((), {}),
    ],
)
def test_what_no_process_can_be_started_with_is_refused(
    argv: tuple[str, ...], environment: dict[str, str]
) -> None:
    request = SpawnRequest(argv=argv, environment=environment, cwd="/", marker="ab" * 16)
    with pytest.raises(BadRequest):
        spawn(request)


SUPERVISOR = textwrap.dedent(
    """
    import sys, time
    from amux.launcher.process.spawn import spawn
    from tests.launcher.agents_at_work import scripted
    process = spawn(scripted("--deaf", "--orphan", sys.argv[1], marker=sys.argv[2]))
    print(process.pid, process.start_time, process.shim_pid, process.shim_start_time, flush=True)
    time.sleep(3600)
    """
)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[ProcessKey]]]:
    """Run a supervisor as another process; its agent, shim and orphan come with it."""
    marker = os.urandom(16).hex()
    file = tmp_path / "orphan"
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(file), marker], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        numbers = [int(word) for word in process.stdout.readline().split()]
        keys = [
            ProcessKey(pid=numbers[0], start=numbers[1]),
            ProcessKey(pid=numbers[2], start=numbers[3]),
            written_pid(file),
        ]
        yield process, keys
        process.kill()
    for key in keys:
        if alive(key):
            os.kill(key.pid, signal.SIGKILL)
    remove_groups(marker)


def test_nothing_survives_a_killed_supervisor(
    supervisor: tuple[subprocess.Popen[str], list[ProcessKey]],
) -> None:
    process, keys = supervisor
    process.kill()
    process.wait()
    assert all(gone(key) for key in keys)


def test_the_agent_does_not_survive_supervisor_and_shim_killed_at_once(
    supervisor: tuple[subprocess.Popen[str], list[ProcessKey]],
) -> None:
    """What had left the agent's tree is ended by the next start of amux: see test_reconcile."""
    process, (agent, guard, orphan) = supervisor
    kill_tree_above(agent, guard, process)
    assert gone(agent)
    assert gone(guard)
    assert alive(orphan)


def test_a_supervisor_that_forked_and_died_is_noticed() -> None:
    """A fork holds the control socket open, so only the process's own end tells."""
    script = textwrap.dedent(
        """
        import os, sys, time
        from amux.launcher.process.spawn import spawn
        from tests.launcher.agents_at_work import scripted
        process = spawn(scripted("--deaf"))
        child = os.fork()
        if child == 0:
            os.close(1)
            time.sleep(3600)
        print(process.pid, process.start_time, child, flush=True)
        os.kill(os.getpid(), 9)
        """
    )
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pid, start, child = (int(word) for word in process.stdout.readline().split())
    try:
        assert gone(ProcessKey(pid=pid, start=start))
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_run_is_found_by_its_marker_and_a_stranger_is_not(started: list[AgentProcess]) -> None:
    started.append(mine := spawn(scripted("--deaf")))
    started.append(other := spawn(scripted("--deaf")))
    found = find_marked([mine.request.marker])[mine.request.marker]
    assert {key_of(mine), shim_of(mine)} < set(found)
    assert len(found) == 3
    assert key_of(other) not in found


def test_a_process_with_a_reused_pid_is_not_taken_for_the_old_one() -> None:
    mine = ProcessKey(pid=os.getpid(), start=start_time(os.getpid()))
    assert alive(mine)
    assert not alive(ProcessKey(pid=mine.pid, start=mine.start - 1))


def test_an_agent_that_suspends_its_group_on_pipes_goes_on(
    started: list[AgentProcess],
) -> None:
    """Nobody could continue it there, and the kernel ignores the stop of an orphaned group."""
    started.append(process := spawn(scripted("--stop-group")))
    assert process.stdout is not None
    assert process.stdout.readline() == b"continued\n"


# --- another identity ---

TARGET = Identity(
    user="x", uid=STRANGER, gid=STRANGER, groups=(STRANGER, STRANGER + 1), home="/", shell=""
)


@pytest.mark.root
@pytest.mark.parametrize("victims", ["guard", "shim", "both", "agent"])
def test_an_agent_of_another_user_ends_whoever_above_it_is_killed(
    victims: str, started: list[AgentProcess]
) -> None:
    """Its death signal is armed after the change of identity, which clears it."""
    script = "(setsid sleep 1000 &) ; echo ready; sleep 1000; true"
    started.append(
        process := spawn(
            SpawnRequest(
                argv=("/bin/sh", "-c", script),
                environment={"PATH": "/usr/bin:/bin"},
                cwd="/",
                marker=os.urandom(16).hex(),
                identity=TARGET,
            )
        )
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    owners = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines()
    assert "\t".join(["Uid:", *[str(STRANGER)] * 4]) in owners
    assert "NoNewPrivs:\t1" in owners
    shim = shim_below(process)
    assert os.stat(f"/proc/{shim}").st_uid == os.geteuid()  # noqa: PTH116  # a process
    chosen = {
        "guard": (process.shim_pid,),
        "shim": (shim,),
        "both": (process.shim_pid, shim),
        "agent": (process.pid,),
    }[victims]
    marker = process.request.marker
    assert eventually(lambda: len(find_marked([marker])[marker]) == 5)
    run = find_marked([marker])[marker]
    for pid in chosen:
        os.kill(pid, signal.SIGSTOP)
    for pid in reversed(chosen):
        os.kill(pid, signal.SIGKILL)
    assert process.wait(DEADLINE) is not None
    assert not any(alive(key) for key in run)


@pytest.mark.root
def test_an_identity_that_cannot_be_taken_on_starts_nothing() -> None:
    root = Identity(user="root", uid=0, gid=0, groups=(0,), home="/", shell="")
    request = SpawnRequest(
        argv=("/bin/true",), environment={}, cwd="/", marker="ab" * 16, identity=root
    )
    with pytest.raises(IsolationRefused, match="root"):
        spawn(request)
