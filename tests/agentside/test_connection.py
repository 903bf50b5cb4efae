from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.agentside.scripted_hub import Documents, unix_hub
from tests.agentside.side import TOKEN, Side, error_of, write_connection

if TYPE_CHECKING:
    from pathlib import Path

    from tests.agentside.scripted_hub import ScriptedHub


def test_outside_a_launch_the_users_own_connection_is_used(side: Side, hub: ScriptedHub) -> None:
    assert side.memory("show", "MEMORY.md").returncode == 0
    assert hub.asked[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert "amux-memory-binding" not in hub.asked[0].headers


def test_without_amux_home_the_connection_is_looked_for_below_the_callers_home(
    side: Side, documents: Documents, tmp_path: Path
) -> None:
    home = tmp_path / "person"
    write_connection(home / ".amux/connections/user.json", "unix:hub.sock", "other")
    for amux_home in ({}, {"AMUX_HOME": ""}):
        plain = Side(side.command, {"HOME": str(home), **amux_home}, tmp_path)
        with unix_hub(home / ".amux/hub.sock", documents) as hub:
            assert plain.memory("show", "MEMORY.md").returncode == 0
        (home / ".amux/hub.sock").unlink()
        assert hub.asked.pop().headers["authorization"] == "Bearer other"


def test_inside_a_launch_its_connection_and_binding_are_sent(
    side: Side, hub: ScriptedHub, tmp_path: Path
) -> None:
    file = write_connection(
        tmp_path / "run/connection.json", f"unix:{tmp_path}/home/hub.sock", "leased"
    )
    done = side.memory(
        "show",
        "MEMORY.md",
        env={"AMUX_CONNECTION": str(file), "AMUX_MEMORY_BINDING": "principal:alice"},
    )
    assert done.returncode == 0
    assert hub.asked[0].headers["authorization"] == "Bearer leased"
    assert hub.asked[0].headers["amux-memory-binding"] == "principal:alice"


@pytest.mark.parametrize(
    "inside",
    [
        {"AMUX_MEMORY_BINDING": "global"},
        {"AMUX_MEMORY_BINDING": ""},
        {"AMUX_CONNECTION": ""},
        {"AMUX_CONNECTION": "home/connections/user.json"},
        {"AMUX_CONNECTION": "/nowhere/connection.json"},
        {"AMUX_CONNECTION": "/nowhere/connection.json", "AMUX_MEMORY_BINDING": "global"},
        {"AMUX_CONNECTION": "/", "AMUX_MEMORY_BINDING": "global"},
        {"AMUX_CONNECTION": "{mine}", "AMUX_MEMORY_BINDING": ""},
        {"AMUX_CONNECTION": "{mine}", "AMUX_MEMORY_BINDING": "glo bal\x01"},
    ],
)
@pytest.mark.parametrize("command", [("show", "MEMORY.md"), ("forget", "a.md"), ("export", "a.md")])
def test_inside_a_launch_nothing_falls_back_to_the_users_own_credential(
    side: Side, hub: ScriptedHub, home: Path, inside: dict[str, str], command: tuple[str, ...]
) -> None:
    mine = str(home / "connections/user.json")
    further = ("--expected-revision", "absent") if command[0] == "forget" else ()
    environ = {name: value.replace("{mine}", mine) for name, value in inside.items()}
    done = side.memory(*command, *further, env=environ)
    assert done.returncode == 4
    assert error_of(done)["code"] == "no_connection"
    assert hub.asked == []


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "null",
        '"text"',
        "{",
        "[" * 100_000,
        '{"schema": 1}',
        '{"schema": 2, "url": "unix:/x", "token": "t"}',
        '{"schema": 1, "url": 7, "token": "t"}',
        '{"schema": 1, "url": "unix:/x", "token": "t\\r\\nX-Evil: 1"}',
        '{"schema": 1, "url": "unix:/x", "token": ""}',
        '{"schema": 1, "url": "unix:/x", "token": "t", "ca_pem": 1}',
        '{"schema": 1, "url": "http://127.0.0.1:1", "token": "t"}',
        '{"schema": 1, "url": "unix:relative", "token": "t"}',
        '{"schema": 1, "url": "ftp://x", "token": "t"}',
        '{"schema": 1, "url": "https://user@host", "token": "t"}',
        '{"schema": 1, "url": "https://host/path", "token": "t"}',
        '{"schema": 1, "url": "https://host:port", "token": "t"}',
        '{"schema": 1, "url": "https://host", "token": "t", "ca_pem": "no certificate"}',
    ],
)
def test_a_damaged_connection_file_is_refused_without_its_secret(
    side: Side, home: Path, content: str
) -> None:
    (home / "connections/user.json").write_text(content)
    done = side.memory("show", "MEMORY.md")
    error = error_of(done)
    assert (done.returncode, error["code"]) == (4, "no_connection")
    assert "Evil" not in json.dumps(error)


def test_a_connection_file_that_is_not_mine_to_read_is_refused(side: Side, home: Path) -> None:
    file = home / "connections/user.json"
    file.unlink()
    file.mkdir()
    assert side.memory("show", "MEMORY.md").returncode == 4


def test_a_home_relative_to_wherever_the_agent_is_is_refused(
    side: Side, hub: ScriptedHub, home: Path
) -> None:
    done = side.memory("show", "MEMORY.md", env={"AMUX_HOME": home.name})
    assert (done.returncode, error_of(done)["code"]) == (4, "no_connection")
    assert hub.asked == []


def test_without_any_connection_the_caller_is_told_how_to_get_one(side: Side, home: Path) -> None:
    (home / "connections/user.json").unlink()
    done = side.memory("show", "MEMORY.md")
    assert done.returncode == 5
    assert "amux hub serve" in str(error_of(done)["message"])
