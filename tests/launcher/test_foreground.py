"""In a terminal: job control, Ctrl-C and the window are as without amux. Run under a real shell."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pexpect
import pytest

from amux.launcher.process.run_processes import ProcessKey, alive, start_time
from amux.procstat import look
from fixtures import accounts
from tests.launcher.agents_at_work import DEADLINE, eventually, gone

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PROMPT = "prompt-of-the-shell> "
TARGET = accounts.STRANGER
AMUX = (sys.executable, "-m", "amux.launcher.command")
DRIVER = (sys.executable, "-m", "tests.launcher.terminal_driver")
OWN = f"{' '.join(DRIVER)} inherit 0"
PIPED = f"{' '.join(DRIVER)} pipes 0"
ISOLATED = f"{' '.join(DRIVER)} pty {TARGET}"
PIPED_ISOLATED = f"{' '.join(DRIVER)} pipes {TARGET}"
ON_INT = "'trap \"echo got-int; exit 7\" INT; echo rea''dy; while :; do sleep 0.02; done'"
CLOSED = ["<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"]
ENVIRONMENT = {"PATH": os.environ["PATH"], "PS1": PROMPT, "PYTHONPATH": str(ROOT), "TERM": "dumb"}

both = pytest.mark.parametrize(
    "driver", [OWN, pytest.param(ISOLATED, marks=pytest.mark.root)], ids=["shared", "relayed"]
)
both_in_a_pipe = pytest.mark.parametrize(
    "driver", [OWN, pytest.param(PIPED_ISOLATED, marks=pytest.mark.root)], ids=["shared", "relayed"]
)


@pytest.fixture
def shell() -> Iterator[pexpect.spawn[str]]:
    """Run an interactive shell with job control on a terminal of 30 by 90."""
    child = pexpect.spawn(
        "/bin/bash",
        ["--norc", "--noprofile", "--noediting", "-i"],
        env=ENVIRONMENT,
        encoding="utf-8",
        timeout=DEADLINE,
        dimensions=(30, 90),
        cwd=str(ROOT),
    )
    child.expect_exact(PROMPT)
    yield child
    child.sendintr()
    child.sendline("kill -KILL %1 2>/dev/null; exit")
    child.close(force=True)


@pytest.fixture
def place() -> Iterator[Path]:
    """Give a folder that every account can write to."""
    with accounts.reachable_folder() as folder:
        folder.chmod(0o777)
        yield folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`amux launch` as somebody; `writable` is a folder where the agent can write."""

    options: tuple[str, ...]
    environment: dict[str, str]
    writable: Path

    @property
    def words(self) -> tuple[str, ...]:
        """Return the command for any agent, without the agent's own words."""
        return (*AMUX, "launch", "generic", *self.options)


@pytest.fixture(params=["own", pytest.param("isolated", marks=pytest.mark.root)])
def command(request: pytest.FixtureRequest) -> Iterator[Command]:
    """Give the command on one's own account, and as another one."""
    with accounts.reachable_folder() as folder, contextlib.ExitStack() as stack:
        home, options = folder, tuple[str, ...]()
        if request.param == "isolated":
            account = stack.enter_context(accounts.account())
            home, options = account.home, ("--user", account.name)
        environment = {
            **ENVIRONMENT,
            "HOME": str(folder),
            "AMUX_HOME": str(folder / "amux"),
            "AMUX_RUNS": str(folder / "runs"),
        }
        yield Command(options=options, environment=environment, writable=home)


def end_and_expect_no_job(shell: pexpect.spawn[str]) -> None:
    shell.sendeof()
    shell.expect_exact(PROMPT)
    shell.sendline("jobs; echo no-jobs")
    shell.expect_exact("\r\nno-jobs")
    assert "Stopped" not in (shell.before or "")


def status_of_last(shell: pexpect.spawn[str]) -> int:
    shell.expect_exact(PROMPT)
    shell.sendline("echo status=$?=")
    shell.expect(r"status=(\d+)=")
    return int(matched(shell)[0])


def waited_for(place: Path) -> Path:
    """Make what every agent can wait for a line of; opened for both ways it waits for nobody."""
    fifo = place / "go"
    os.mkfifo(fifo)
    fifo.chmod(0o666)
    return fifo


def stopped(pid: int) -> bool:
    process = look(pid)
    return process is not None and process.stopped


def matched(shell: pexpect.spawn[str]) -> list[str]:
    """Return the groups of what was expected last."""
    assert isinstance(shell.match, re.Match)
    return [str(group) for group in shell.match.groups()]


@both
def test_ctrl_c_is_the_agents_and_amux_hands_its_status_on(
    driver: str, shell: pexpect.spawn[str]
) -> None:
    shell.sendline(f"{driver} /bin/sh -c {ON_INT}; echo status=$?=")
    shell.expect_exact("ready\r\n")
    shell.sendintr()
    shell.expect_exact("got-int")
    shell.expect_exact("status=7=")


@both
def test_ctrl_c_ends_an_agent_that_does_nothing_about_it(
    driver: str, shell: pexpect.spawn[str]
) -> None:
    shell.sendline(f"{driver} /bin/sh -c 'echo rea''dy; exec sleep 1000'")
    shell.expect_exact("ready\r\n")
    shell.sendintr()
    shell.expect_exact(PROMPT)
    shell.sendline("echo status=$?=")
    shell.expect_exact("status=130=")


@both
def test_ctrl_z_stops_the_job_and_fg_goes_on(driver: str, shell: pexpect.spawn[str]) -> None:
    script = "'echo rea''dy; while read line; do echo heard $line; done'"
    shell.sendline(f"{driver} /bin/sh -c {script}")
    shell.expect_exact("ready\r\n")
    for number in range(2):
        shell.sendcontrol("z")
        shell.expect_exact("Stopped")
        shell.expect_exact(PROMPT)
        shell.sendline("fg")
        shell.sendline(f"word {number}")
        shell.expect_exact(f"heard word {number}")
    end_and_expect_no_job(shell)


PIPELINES = {
    "before": "{driver} /bin/sh -c {script} | cat",
    "after": "(while read line; do echo $line; done) | {driver} /bin/sh -c {script}",
    "between": "cat | {driver} /bin/sh -c {script} | cat",
}


@pytest.mark.parametrize("pipeline", PIPELINES.values(), ids=PIPELINES.keys())
@both_in_a_pipe
def test_ctrl_z_stops_a_whole_pipeline_and_fg_brings_all_of_it_back(
    driver: str, pipeline: str, shell: pexpect.spawn[str]
) -> None:
    script = "'echo pid=$$=; while read line; do echo heard $line; done'"
    shell.sendline(pipeline.format(driver=driver, script=script))
    shell.expect(r"pid=(\d+)=\r\n")
    agent = int(matched(shell)[0])
    for number in range(2):
        shell.sendcontrol("z")
        shell.expect_exact("Stopped")
        shell.expect_exact(PROMPT)
        assert eventually(lambda: stopped(agent))
        shell.sendline("fg")
        shell.sendline(f"word {number}")
        shell.expect_exact(f"heard word {number}")
    end_and_expect_no_job(shell)


@both
def test_an_agent_that_stops_itself_stops_what_waits_for_it_too(
    driver: str, shell: pexpect.spawn[str], tmp_path: Path
) -> None:
    job = tmp_path / "job"
    job.write_text(f"{driver} /bin/sh -c 'kill -STOP $$; echo on''ward'\n", encoding="utf-8")
    shell.sendline(f"sh {job}")
    shell.expect_exact("Stopped")
    shell.expect_exact(PROMPT)
    shell.sendline("fg")
    shell.expect_exact("onward")
    assert status_of_last(shell) == 0


@both
def test_an_agent_that_suspends_its_group_stops_the_job(
    driver: str, shell: pexpect.spawn[str]
) -> None:
    """As Claude and Pi do when they read Ctrl-Z themselves."""
    shell.sendline(f"{driver} /bin/sh -c 'kill -TSTP 0; echo contin''ued'")
    shell.expect_exact("Stopped")
    shell.expect_exact(PROMPT)
    shell.sendline("fg")
    shell.expect_exact("continued")
    assert status_of_last(shell) == 0


@both
def test_an_agent_that_stops_itself_alone_stops_the_job(
    driver: str, shell: pexpect.spawn[str]
) -> None:
    shell.sendline(f"{driver} /bin/sh -c 'kill -STOP $$; echo on''ward'")
    shell.expect_exact("Stopped")
    shell.expect_exact(PROMPT)
    shell.sendline("fg")
    shell.expect_exact("onward")
    assert status_of_last(shell) == 0


@both
def test_the_window_size_is_the_agents_and_follows(driver: str, shell: pexpect.spawn[str]) -> None:
    script = "'trap \"stty size; exit\" WINCH; stty size; while :; do sleep 0.02; done'"
    shell.sendline(f"{driver} /bin/sh -c {script}")
    shell.expect_exact("30 90")
    shell.setwinsize(40, 100)
    shell.expect_exact("40 100")
    shell.expect_exact(PROMPT)


@both
def test_an_agent_killed_in_raw_mode_leaves_a_usable_terminal(
    driver: str, shell: pexpect.spawn[str]
) -> None:
    shell.sendline(f"{driver} /bin/sh -c 'stty raw -echo; echo rea''dy; kill -KILL $$'")
    shell.expect_exact("ready")
    shell.expect_exact(PROMPT)
    shell.sendline("stty -a")
    shell.expect(r" icanon")
    shell.expect(r" echo ")


@both
def test_a_job_in_the_background_is_ended_with_amux(driver: str, shell: pexpect.spawn[str]) -> None:
    shell.sendline(f"{driver} /bin/sh -c 'echo pid=$$=; exec sleep 1000' & wait")
    shell.expect(r"pid=(\d+)=")
    shell.sendintr()
    shell.expect_exact(PROMPT)
    shell.sendline("kill -TERM %1; wait %1; echo status=$?=")
    shell.expect(r"status=(143|129)=")  # on a PTY of its own it is hung up


@both
def test_a_job_in_the_background_goes_on_and_can_be_brought_to_the_front(
    driver: str, shell: pexpect.spawn[str]
) -> None:
    """It shows what it writes, and neither stops nor takes the keys of the job in front."""
    script = "'echo rea''dy; read line; echo heard $line'"
    shell.sendline(f"{driver} /bin/sh -c {script} &")
    shell.expect(r"ready\r+\n")  # a relay leaves the terminal's modes alone in the background
    shell.sendline("echo for the she''ll; fg")
    shell.expect_exact("for the shell")
    shell.expect_exact("sh -c")
    shell.sendline("a word")
    shell.expect_exact("heard a word")
    assert status_of_last(shell) == 0


@both_in_a_pipe
def test_a_pipeline_in_the_background_goes_on_until_somebody_is_to_type(
    driver: str, shell: pexpect.spawn[str], place: Path
) -> None:
    go = waited_for(place)
    script = f"'echo rea''dy; read x <{go}; echo on''ward; read x <{go}; read x; echo heard $x'"
    with go.open("r+b", buffering=0) as told:
        shell.sendline(f"{driver} /bin/sh -c {script} | cat &")
        shell.expect_exact("ready\r\n")
        told.write(b"go\n")
        shell.expect_exact("onward\r\n")
        shell.sendline("echo for the she''ll; fg")
        shell.expect_exact("for the shell")
        shell.expect_exact("sh -c")
        told.write(b"go\n")
        shell.sendline("a word")
        shell.expect_exact("heard a word")
    assert status_of_last(shell) == 0


@both
def test_an_agent_that_ends_in_the_background_leaves_the_terminal_to_the_job_in_front(
    driver: str, shell: pexpect.spawn[str], tmp_path: Path, place: Path
) -> None:
    go, job = waited_for(place), tmp_path / "job"
    # It starts nothing meanwhile: a shell with a child that is stopped before its exec never stops.
    agent = f"'echo rea''dy; read line <{go}; kill -KILL $$'"
    job.write_text(f"{driver} /bin/sh -c {agent}; echo job''done\n", encoding="utf-8")
    shell.sendline(f"sh {job}")
    shell.expect_exact("ready\r\n")
    shell.sendcontrol("z")
    shell.expect_exact("Stopped")
    shell.expect_exact(PROMPT)
    shell.sendline("bg; cat")
    shell.sendline("in front")
    shell.expect_exact("in front\r\nin front\r\n")
    with go.open("r+b", buffering=0) as told:
        told.write(b"go\n")
        shell.expect_exact("jobdone")
    for word in ("once", "twice"):  # the first may answer a read that began before
        shell.sendline(word)
        shell.expect_exact(f"{word}\r\n{word}\r\n")


@both
def test_a_terminal_that_the_agent_gave_to_a_group_that_is_gone_comes_back(
    driver: str, shell: pexpect.spawn[str], tmp_path: Path, place: Path
) -> None:
    """As by an agent that runs an interactive shell and is killed with it."""
    job, agent = tmp_path / "job", place / "agent.py"
    agent.write_text(
        "import os, signal\nos.setpgid(0, 0)\nsignal.signal(signal.SIGTTOU, signal.SIG_IGN)\n"
        "os.tcsetpgrp(0, os.getpid())\nos.kill(os.getpid(), signal.SIGKILL)\n",
        encoding="utf-8",
    )
    job.write_text(
        f"{driver} /usr/bin/python3 -I -S {agent}; echo ask''ing; read line; echo got $line\n",
        encoding="utf-8",
    )
    shell.sendline(f"sh {job}")
    shell.expect_exact("asking")
    shell.sendline("an answer")
    shell.expect_exact("got an answer")


@pytest.mark.root
def test_another_users_agent_has_no_way_to_the_callers_terminal(
    shell: pexpect.spawn[str],
) -> None:
    shell.sendline(f"tty; {ISOLATED} /bin/sh -c 'tty; id -u; ps -o sid= -p $$; cat /dev/tty'")
    shell.expect(r"(/dev/pts/\d+)\r\n(/dev/pts/\d+)\r\n(\d+)\r\n\s*(\d+)\r\n")
    mine, its, uid, session = matched(shell)
    assert mine != its
    assert int(uid) == TARGET
    assert int(session) != shell.pid
    shell.sendline("typed")
    shell.expect_exact("typed\r\ntyped\r\n")
    shell.sendeof()
    assert status_of_last(shell) == 0


@pytest.mark.root
def test_another_users_agent_in_a_pipe_has_pipes_of_its_own() -> None:
    script = "cat; echo problem >/dev/stderr; readlink /proc/self/fd/0; exit 5"
    done = subprocess.run(
        [*DRIVER, "pipes", str(TARGET), "/bin/sh", "-c", script],
        input="x" * 300_000 + "\n",
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    body, last = done.stdout.splitlines()
    assert body == "x" * 300_000
    assert last.startswith("pipe:")
    assert done.stderr == "problem\n"
    assert done.returncode == 5


@both_in_a_pipe
def test_ctrl_c_reaches_what_the_agent_waits_for_where_the_output_is_piped(
    driver: str, shell: pexpect.spawn[str]
) -> None:
    shell.sendline(f"{driver} /bin/sh -c 'echo rea''dy; sleep 1000; echo after' | cat")
    shell.expect_exact("ready\r\n")
    shell.sendintr()
    shell.expect_exact(PROMPT)
    shell.sendline("echo status=${PIPESTATUS[0]}=")
    shell.expect_exact("status=130=")


@pytest.mark.parametrize("closed", CLOSED)
@both_in_a_pipe
def test_an_agent_runs_whatever_of_stdio_the_program_that_starts_it_has_closed(
    driver: str, closed: str
) -> None:
    agent = "'read line; echo a word; echo another >&2; exit 3'"
    command = f"{driver} /bin/sh -c {agent} {closed}"
    done = subprocess.run(
        ("/bin/sh", "-c", command), env=ENVIRONMENT, cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == 3, done.stderr


@pytest.mark.parametrize(
    "driver", [PIPED, pytest.param(PIPED_ISOLATED, marks=pytest.mark.root)], ids=["own", "isolated"]
)
def test_a_closed_stdin_is_at_its_end_for_an_agent_with_pipes(driver: str) -> None:
    command = f"{driver} /bin/sh -c 'cat; echo a word; exit 3' <&-"
    done = subprocess.run(
        ("/bin/sh", "-c", command),
        env=ENVIRONMENT,
        cwd=ROOT,
        capture_output=True,
        check=False,
        timeout=DEADLINE,
    )
    assert (done.returncode, done.stdout) == (3, b"a word\n"), done.stderr


@pytest.mark.parametrize("closed", CLOSED)
def test_the_command_has_all_of_stdio_whatever_its_caller_has_closed(
    closed: str, command: Command
) -> None:
    agent = f"'ls /proc/self/fd >{command.writable}/open; exit 3'"
    words = f"{' '.join(command.words)} -- /bin/sh -c {agent} {closed}"
    done = subprocess.run(
        ("/bin/sh", "-c", words),
        env=command.environment,
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert {"0", "1", "2"} < set((command.writable / "open").read_text(encoding="ascii").split())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@both_in_a_pipe
def test_term_and_hup_to_amux_end_the_agent(driver: str, number: int) -> None:
    with subprocess.Popen(
        [*driver.split(), "/bin/sh", "-c", "echo ready; exec sleep 1000"],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        # The agent's own status; or amux's, where the signal came before it served the agent.
        assert process.wait(DEADLINE) in {128 + signal.SIGTERM, 128 + number}
        assert process.stdout.read() == b""


@both_in_a_pipe
def test_what_nohup_ignores_stays_ignored_in_the_agent(driver: str) -> None:
    script = "grep SigIgn /proc/self/status"
    done = subprocess.run(
        ["/bin/sh", "-c", f"trap '' HUP INT; exec {driver} /bin/sh -c '{script}'"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    # 32 and 33 are the C library's own: nobody can reset them, and some parents ignore them.
    reserved = 1 << 31 | 1 << 32
    assert int(done.stdout.split()[1], 16) & ~reserved == 0b11


def test_the_command_itself_hands_stdio_through_and_ends_with_the_agents_status(
    command: Command,
) -> None:
    done = subprocess.run(
        [*command.words, "--", "/bin/sh", "-c", "cat; echo err >&2; exit 9"],
        input=b"\x00\xff raw",
        env=command.environment,
        capture_output=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 9, done.stderr
    assert done.stdout == b"\x00\xff raw"
    assert b"err\n" in done.stderr


def test_ctrl_c_before_there_is_an_agent_ends_the_launch(command: Command, place: Path) -> None:
    """The agent hangs on `--version`; nobody else could answer the key."""
    agent = place / "agent"
    agent.write_text("#!/bin/sh\nexec 3<>$0.asked\nexec sleep 1000\n", encoding="utf-8")
    agent.chmod(0o755)
    with subprocess.Popen(
        [*AMUX, "launch", "pi", *command.options, "--executable", str(agent)],
        env=command.environment,
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
    ) as process:
        assert eventually((place / "agent.asked").exists)
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == 130


@both
def test_a_stopped_job_ends_too_when_amux_is_killed(driver: str, shell: pexpect.spawn[str]) -> None:
    shell.sendline(f"{driver} /bin/sh -c 'echo pid=$$=; read line'")
    shell.expect(r"pid=(\d+)=")
    pid = int(matched(shell)[0])
    agent = ProcessKey(pid=pid, start=start_time(pid))
    shell.sendcontrol("z")
    shell.expect_exact("Stopped")
    shell.expect_exact(PROMPT)
    assert alive(agent)
    shell.sendline("kill -KILL $(jobs -p)")
    assert gone(agent)
