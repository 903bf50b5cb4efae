"""The agent's environment, made from a poisoned parent's."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amux.launcher.errors import BadRequest
from amux.launcher.memory.grant import MemoryVariables
from amux.launcher.steps.environment import (
    ALLOWED_NAMES,
    SESSION_NAMES,
    SYSTEM_PATH,
    RelocatedHome,
    base_environment,
    run_environment,
)

TARGET = RelocatedHome(home="/home/alice", user="alice", shell="/bin/zsh")  # noqa: S604  # a value
MEMORY = MemoryVariables(
    binding="global",
    cli="/runs/x/bin/amux",
    connection="/runs/x/connection",
    commands="/runs/x/bin",
)

SESSIONS = {
    "CODEX_THREAD_ID": "0199",
    "CODEX_SANDBOX": "seatbelt",
    "CODEX_SANDBOX_NETWORK_DISABLED": "1",
    "CODEX_CI": "1",
    "CODEX_MANAGED_BY_NPM": "1",
    "CLAUDECODE": "1",
    "CLAUDE_PID": "4242",
    "CLAUDE_CODE_ENTRYPOINT": "cli",
    "CLAUDE_CODE_SESSION_ID": "aaaa",
    "CLAUDE_CODE_SESSION_ATTENDED": "1",
    "CLAUDE_CODE_SESSION_ACCESS_TOKEN": "t",
    "CLAUDE_CODE_CHILD_SESSION": "1",
    "CLAUDE_CODE_REMOTE_SESSION_ID": "bbbb",
    "CLAUDE_CODE_LAUNCHED_BY_SESSION_IDS": "cccc",
    "CLAUDE_CODE_SSE_PORT": "1234",
    "CLAUDE_CODE_EXECPATH": "/x",
    "CLAUDE_CODE_MESSAGING_SOCKET": "/x",
    "CLAUDE_CODE_MESSAGING_TOKEN": "t",
    "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR": "9",
    "CLAUDE_PROJECT_DIR": "/other/project",
    "CLAUDE_ENV_FILE": "/other/env",
    "PI_CODING_AGENT": "true",
    "PI_SESSION_ID": "x",
    "PI_MODEL": "m",
    "PI_PROVIDER": "p",
    "PI_REASONING_LEVEL": "high",
    "AI_AGENT": "pi",
    "GEMINI_CLI": "1",
    "OPENCODE": "1",
    "OPENCODE_PID": "1",
    "HERMES_SESSION_ID": "x",
    "OPENCLAW_SHELL": "exec",
    "CURSOR_AGENT": "1",
    "AMUX_RUN": "feed",
    "AMUX_HOME": "/srv/amux",
    "AMUX_MEMORY_BINDING": "principal:bob",
    "AMUX_CONNECTION": "/other/connection.json",
    "AMUX_CLI": "/other/amux",
    "AMUX_ANYTHING": "x",
    "BASH_FUNC_amux%%": "() { evil; }",
}
SETTINGS = {
    "CODEX_HOME": "/home/me/codex",
    "CLAUDE_CODE_USE_BEDROCK": "1",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "1000",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_OAUTH_TOKEN": "t",
    "CLAUDE_CONFIG_DIR": "/home/me/claude",
    "PI_OFFLINE": "1",
    "ANTHROPIC_API_KEY": "k",
    "OPENCODE_CONFIG": "/x",
    "EDITOR": "vi",
    "LD_PRELOAD": "/home/me/lib.so",
    "PYTHONPATH": "/home/me/py",
}
POISONED = {
    **SESSIONS,
    **SETTINGS,
    "HOME": "/home/me",
    "USER": "me",
    "PATH": "/home/me/bin::.:relative:/usr/bin:/home/me/bin",
    "LANG": "de_DE.UTF-8",
    "LC_TIME": "C",
    "TERM": "xterm",
    "OLDPWD": "/old",
    "PWD": "/stale",
    "HTTPS_PROXY": "http://user:secret@proxy:3128",
    "https_proxy": "http://proxy:3128",
    "SSH_AUTH_SOCK": "/run/agent",
    "XDG_RUNTIME_DIR": "/run/user/1000",
}


def test_the_callers_environment_loses_the_other_sessions_and_keeps_the_settings() -> None:
    environment = base_environment(POISONED, cwd="/work")
    assert not set(environment) & set(SESSIONS)
    assert {name: environment[name] for name in SETTINGS} == SETTINGS
    assert environment["PWD"] == "/work"  # noqa: S105  # a folder
    assert "OLDPWD" not in environment


@pytest.mark.parametrize("name", ["CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR"])
def test_a_folder_set_to_nothing_is_removed(name: str) -> None:
    assert name not in base_environment({name: ""}, cwd="/")


def test_what_a_session_set_to_its_own_value_goes_and_the_callers_own_value_stays() -> None:
    claude = {"CLAUDECODE": "1", "GIT_EDITOR": "true"}
    assert "GIT_EDITOR" not in base_environment(claude, cwd="/")
    assert base_environment({**claude, "GIT_EDITOR": "vim"}, cwd="/")["GIT_EDITOR"] == "vim"
    assert base_environment({"GIT_EDITOR": "true"}, cwd="/")["GIT_EDITOR"] == "true"


def test_path_has_absolute_folders_only_and_each_once() -> None:
    environment = base_environment(POISONED, cwd="/", folders=("/opt/agent", "/usr/bin"))
    assert environment["PATH"] == "/opt/agent:/home/me/bin:/usr/bin"


@pytest.mark.parametrize("path", [None, "", ":", ".:bin"])
def test_a_path_without_any_absolute_folder_becomes_the_systems(path: str | None) -> None:
    caller = {} if path is None else {"PATH": path}
    assert base_environment(caller, cwd="/")["PATH"] == SYSTEM_PATH
    found = base_environment(caller, cwd="/", folders=("/opt/agent",))["PATH"]
    assert found == f"/opt/agent:{SYSTEM_PATH}"


def test_another_users_environment_has_nothing_of_the_callers_but_the_allow_list() -> None:
    environment = base_environment(POISONED, cwd="/home/alice", home=TARGET, folders=("/opt/a",))
    assert environment == {
        "HOME": "/home/alice",
        "USER": "alice",
        "LOGNAME": "alice",
        "SHELL": "/bin/zsh",
        "CODEX_HOME": "/home/alice/.codex",
        "PI_CODING_AGENT_DIR": "/home/alice/.pi/agent",
        "PATH": f"/opt/a:{SYSTEM_PATH}",
        "PWD": "/home/alice",
        "LANG": "de_DE.UTF-8",
        "LC_TIME": "C",
        "TERM": "xterm",
        "https_proxy": "http://proxy:3128",
    }


def test_names_that_are_asked_for_pass_the_allow_list() -> None:
    environment = base_environment(
        POISONED, cwd="/", home=TARGET, pass_names=("ANTHROPIC_API_KEY", "HTTPS_PROXY", "UNSET")
    )
    assert environment["ANTHROPIC_API_KEY"] == "k"
    assert environment["HTTPS_PROXY"] == "http://user:secret@proxy:3128"
    assert "UNSET" not in environment


@pytest.mark.parametrize(
    "name", ["HOME", "PATH", "CLAUDE_CONFIG_DIR", "CODEX_THREAD_ID", "AMUX_CONNECTION", "A=B", ""]
)
def test_names_that_the_launch_decides_cannot_be_asked_for(name: str) -> None:
    with pytest.raises(BadRequest, match="--env"):
        base_environment(POISONED, cwd="/", home=TARGET, pass_names=(name,))


def test_a_private_home_keeps_the_callers_path() -> None:
    home = RelocatedHome(home="/srv/h", user="me", shell="/bin/sh", path=POISONED["PATH"])  # noqa: S604  # a value
    environment = base_environment(POISONED, cwd="/srv/h", home=home)
    assert environment["PATH"] == "/home/me/bin:/usr/bin"
    assert "CLAUDE_CONFIG_DIR" not in environment
    assert environment["CODEX_HOME"] == "/srv/h/.codex"
    assert not {"LD_PRELOAD", "PYTHONPATH", "ANTHROPIC_API_KEY"} & set(environment)


def test_memory_puts_its_command_first_and_names_binding_and_connection() -> None:
    base = base_environment(POISONED, cwd="/")
    environment = run_environment(base, memory=MEMORY)
    assert environment["PATH"].split(":")[0] == "/runs/x/bin"
    assert environment["AMUX_MEMORY_BINDING"] == "global"
    assert environment["AMUX_CLI"] == "/runs/x/bin/amux"
    assert environment["AMUX_CONNECTION"] == "/runs/x/connection"


def test_without_memory_no_variable_of_amux_is_left() -> None:
    environment = run_environment(base_environment(POISONED, cwd="/"))
    assert [name for name in environment if name.startswith("AMUX_")] == []


def test_a_provider_adds_and_removes_but_never_speaks_for_amux() -> None:
    base = base_environment({"A": "1", "B": "2", "PATH": "/bin"}, cwd="/")
    environment = run_environment(base, additions=[("A", "3")], without=["B"])
    assert environment == {"A": "3", "PATH": "/bin", "PWD": "/"}
    for addition in (("AMUX_CLI", "x"), ("A=B", "x"), ("A", "x\0y"), ("", "x")):
        with pytest.raises(BadRequest, match="provider"):
            run_environment(base, additions=[addition])


def test_computing_changes_no_input() -> None:
    before = dict(POISONED)
    run_environment(base_environment(POISONED, cwd="/", home=TARGET), memory=MEMORY)
    assert before == POISONED


@given(
    st.dictionaries(
        st.one_of(st.sampled_from(sorted(POISONED)), st.text(min_size=1, max_size=12)),
        st.text(max_size=12),
    )
)
def test_no_environment_at_all_lets_a_session_through(caller: dict[str, str]) -> None:
    for home in (None, TARGET):
        environment = base_environment(caller, cwd="/", home=home)
        assert not set(environment) & set(SESSIONS)
        assert all(name and "=" not in name and "\0" not in name for name in environment)
        assert all(folder.startswith("/") for folder in environment["PATH"].split(":"))


def test_a_name_that_the_parent_holds_twice_reaches_the_agent_once(tmp_path: Path) -> None:
    """An environment block may repeat a name; execve is told so here, and amux runs under it."""
    script = tmp_path / "inner.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, sys
            from amux.launcher.steps.environment import base_environment
            from amux.launcher.process.spawn import SpawnRequest, spawn
            process = spawn(SpawnRequest(
                argv=("/bin/cat", "/proc/self/environ"),
                environment=base_environment(os.environ, cwd="/"), cwd="/", marker="aa" * 16))
            sys.stdout.buffer.write(process.stdout.read())
            """
        ),
        encoding="utf-8",
    )
    outer = textwrap.dedent(
        """
        import ctypes, sys
        argv = [sys.executable.encode(), sys.argv[1].encode(), None]
        env = [b"TWICE=1", b"TWICE=2", b"PATH=/usr/bin", b"CODEX_THREAD_ID=x",
               b"CODEX_THREAD_ID=y", b"PYTHONPATH=" + sys.argv[2].encode(), None]
        strings = lambda items: (ctypes.c_char_p * len(items))(*items)
        ctypes.CDLL(None).execve(argv[0], strings(argv), strings(env))
        """
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", outer, str(script), root],
        capture_output=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    names = [entry.split(b"=")[0] for entry in done.stdout.split(b"\0") if entry]
    assert names.count(b"TWICE") == 1
    assert b"CODEX_THREAD_ID" not in names
    assert len(names) == len(set(names))


def test_the_documentation_lists_every_name() -> None:
    page = (Path(__file__).parents[2] / "docs" / "supervisor.md").read_text(encoding="utf-8")
    assert [name for name in (*SESSION_NAMES, *ALLOWED_NAMES) if f"`{name}`" not in page] == []
