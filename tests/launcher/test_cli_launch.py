"""`amux launch` and `amux resume` as a shell sees them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from amux.launcher.cli import command
from amux.launcher.session.store import SessionRecord, SessionStore
from fixtures.hosts import make_host
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from amux.launcher.host import Host

AMUX = str(Path(sys.executable).with_name("amux"))


def amux(
    host: Host, *words: str, stdin: str = "", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (AMUX, *words),
        env={**host.environ, **(environment or {})},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        cwd=host.home.parent,
    )


@pytest.fixture
def off_host(tmp_path: Path) -> Host:
    """Give a Runtime whose memory is off: nothing starts a Hub."""
    return make_host(tmp_path, memory=False)


def events(done: subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_stdin_stdout_stderr_and_status_are_the_agents_own(off_host: Host) -> None:
    script = "cat; echo problem >&2; exit 7"
    done = amux(off_host, "launch", "generic", "--", "/bin/sh", "-c", script, stdin="in\n")
    assert done.stdout == "in\n"
    assert "problem\n" in done.stderr
    assert done.returncode == 7


def test_a_signal_ends_as_128_plus_its_number(off_host: Host) -> None:
    done = amux(off_host, "launch", "generic", "--", "/bin/sh", "-c", "kill -USR1 $$")
    assert done.returncode == 128 + signal.SIGUSR1


def test_json_events_are_lines_on_stderr_and_stdout_stays_the_agents(off_host: Host) -> None:
    done = amux(off_host, "launch", "generic", "--json", "--", "/bin/echo", "hello")
    assert done.stdout == "hello\n"
    launched, ended = events(done)
    report = launched["report"]
    assert isinstance(report, dict)
    assert (launched["event"], report["provider"]) == ("launched", "generic")
    assert (ended["event"], ended["code"], ended["signal"]) == ("ended", 0, None)
    assert ended["session"] == report["session"]


def test_where_amux_itself_fails_the_status_is_125_and_one_sentence_says_why(
    off_host: Host,
) -> None:
    done = amux(off_host, "launch", "codex", "--executable", "/nowhere/codex")
    assert done.returncode == 125
    assert done.stderr.startswith("amux: /nowhere/codex is not an executable file")
    assert len(done.stderr.splitlines()) == 1
    (failed,) = events(amux(off_host, "launch", "nothing", "--json"))
    assert (failed["event"], failed["code"]) == ("failed", "unknown_provider")


def test_resuming_what_does_not_exist_says_where_to_look(off_host: Host) -> None:
    done = amux(off_host, "resume", "0123456789abcdef")
    assert done.returncode == 125
    assert "`amux sessions list` shows them" in done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("launch",), "Missing argument 'PROVIDER'"),
        (("launch", "pi", "--provide", "x"), "is not FILE:TARGET"),
        (("lunch",), "No such command 'lunch'"),
    ],
)
def test_a_wrong_call_is_status_2_with_a_usage(
    off_host: Host, words: tuple[str, ...], sentence: str
) -> None:
    done = amux(off_host, *words)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_a_folder_that_is_not_there_is_refused_as_by_the_api(off_host: Host) -> None:
    done = amux(off_host, "launch", "generic", "--cwd", "/nowhere", "--", "true")
    assert done.returncode == 125
    assert done.stderr == (
        "amux: the folder /nowhere is not there; name another one to start the agent in (cwd)\n"
    )


def test_terminating_amux_ends_the_agent_and_its_children(off_host: Host, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 300 & echo $! > {pid_file}.part; mv {pid_file}.part {pid_file}; echo up; wait"
    process = subprocess.Popen(
        (AMUX, "launch", "generic", "--", "/bin/sh", "-c", script),
        env=dict(off_host.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        sleeper = os.pidfd_open(int(pid_file.read_text()))
        process.terminate()
        # The end of file says that nobody holds the pipe any more: shell and child are gone.
        assert process.stdout.read() == b""
        process.wait(SECONDS)
        os.close(sleeper)
    assert process.returncode == 128 + signal.SIGTERM


def test_the_agents_environment_has_no_variable_of_another_agents_session(
    off_host: Host,
) -> None:
    poisoned = {"CODEX_THREAD_ID": "x", "CLAUDECODE": "1", "AMUX_MEMORY_BINDING": "global"}
    done = amux(off_host, "launch", "generic", "--", "/usr/bin/env", environment=poisoned)
    names = {line.partition("=")[0] for line in done.stdout.splitlines()}
    assert names.isdisjoint({*poisoned, "AMUX_CONNECTION", "AMUX_CLI"})
    assert "PATH" in names


def test_help_lists_every_command_and_imports_none_of_them(off_host: Host) -> None:
    done = amux(off_host, "--help")
    assert done.returncode == 0
    for name in ("launch", "resume", "sessions", "hub", "memory", "mcp", "demo", "probe"):
        assert f"  {name} " in done.stdout


@pytest.mark.parametrize("words", [(), ("system",), ("sessions",), ("hub",), ("credential",)])
def test_no_line_of_help_is_cut_off_and_no_markup_is_shown(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(command, [*words, "--help"], terminal_width=80)
    listed = done.output.partition("Commands:")[2]
    assert listed
    assert "..." not in listed


def test_help_on_launch_shows_each_example_on_a_line_of_its_own() -> None:
    lines = CliRunner().invoke(command, ["launch", "--help"]).output.splitlines()
    assert "  amux launch codex --principal alice" in lines
    assert "\\b" not in "".join(lines)


def test_a_variable_that_is_not_there_to_let_in_is_a_warning(off_host: Host) -> None:
    words = ("--env", "AN_ABSENT_ONE", "--env", "HOME", "--", "/bin/true")
    done = amux(off_host, "launch", "generic", *words)
    assert done.returncode == 0
    assert done.stderr == "amux: warning: --env AN_ABSENT_ONE: not set in this environment\n"


def test_what_a_provider_lacks_is_one_line_and_none_while_memory_is_off(
    off_host: Host, quiet_host: Host
) -> None:
    assert amux(off_host, "launch", "generic", "--", "/bin/true").stderr == ""
    (line,) = amux(quiet_host, "launch", "generic", "--", "/bin/true").stderr.splitlines()
    assert line.startswith("amux: generic lacks: memory protocol; memory tools; ")


def test_a_resume_finds_its_session_by_the_first_characters(off_host: Host) -> None:
    store = SessionStore(off_host.home)
    store.create(SessionRecord(id="aaaa1111", provider="generic"))
    store.create(SessionRecord(id="aaaa2222", provider="generic"))
    assert (
        "session aaaa1111 never got as far"
        in amux(off_host, "resume", "aaaa1", "--executable", "/bin/true").stderr
    )
    ambiguous = amux(off_host, "resume", "aaaa")
    assert ambiguous.returncode == 125
    assert "2 sessions begin with aaaa: aaaa1111, aaaa2222" in ambiguous.stderr


def test_a_demo_without_agents_says_where_they_can_be_named(off_host: Host, tmp_path: Path) -> None:
    done = amux(off_host, "demo", environment={"PATH": str(tmp_path)})
    assert done.returncode == 1
    assert "no `codex` on PATH" in done.stderr
    assert "--agents" in done.stderr
    assert "--executable" not in done.stderr


@pytest.mark.parametrize(
    "option", ["--user", "--principal", "--private-home", "--cwd", "--executable", "--env"]
)
def test_an_empty_value_that_decides_who_or_where_is_refused(off_host: Host, option: str) -> None:
    done = amux(off_host, "launch", "generic", option, "", "--", "/bin/echo", "ran")
    assert done.returncode == 2
    assert f"Invalid value for '{option}': it is empty; leave the option out" in done.stderr
    assert done.stdout == ""
    assert SessionStore(off_host.home).list().records == ()


def test_amux_inside_an_agent_says_so_rather_than_make_another_home(off_host: Host) -> None:
    """Its own home is not told to the agent, so the default one would be made beside it."""
    command = (AMUX, "launch", "generic", "--", AMUX, "sessions", "list")
    done = subprocess.run(
        command, env=off_host.environ, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 1
    assert "this is inside an agent that amux launched" in done.stderr
    assert not (Path(off_host.environ["HOME"]) / ".amux").exists()
    named = (*command[:4], "env", f"AMUX_HOME={off_host.home}", *command[4:])
    done = subprocess.run(
        named, env=off_host.environ, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "running" in done.stdout
