"""What the MCP server tells of itself at the socket that the launch's connection file names."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from fixtures.waiting import SECONDS
from tests.agentside.mcp_session import MODERN, McpSession
from tests.agentside.side import TOKEN, Side

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOOLS = [
    "amux.memory_search",
    "amux.memory_get",
    "amux.memory_upsert",
    "amux.memory_forget",
    "amux.result_continue",
]
CLIENT = {"name": "test", "version": "1"}


def connection(side: Side, hub: str, witness: object, token: str = TOKEN) -> dict[str, str]:
    """Write a launch's connection file and return the environment that names it."""
    file = side.cwd / "connection.json"
    fields = {"schema": 1, "url": f"unix:{hub}", "token": token, "witness": witness}
    file.write_text(json.dumps(fields))
    return {"AMUX_CONNECTION": str(file), "AMUX_MEMORY_BINDING": "global"}


@pytest.fixture(name="ear")
def _ear(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.settimeout(SECONDS)
        ear.bind(str(tmp_path / "ear.sock"))
        yield ear


@pytest.fixture(name="heard")
def _heard(side: Side, tmp_path: Path) -> Iterator[McpSession]:
    environ = connection(side, str(tmp_path / "hub.sock"), str(tmp_path / "ear.sock"))
    with McpSession(side.spawn_mcp(environ)) as session:
        yield session


def told(ear: socket.socket) -> Any:  # noqa: ANN401  # a message
    return json.loads(ear.recv(8192))


def test_the_launcher_hears_that_the_list_was_asked_for_by_whom_and_what_was_offered(
    ear: socket.socket, heard: McpSession
) -> None:
    heard.initialize()
    assert told(ear) == {"schema": 1, "event": "initialize", "client": CLIENT}
    heard.ask("tools/list")
    assert told(ear) == {"schema": 1, "event": "tools/list", "client": CLIENT, "tools": TOOLS}


def test_a_client_without_a_handshake_is_named_by_what_it_stamps_on_its_request(
    ear: socket.socket, heard: McpSession
) -> None:
    stamped = {**MODERN, "io.modelcontextprotocol/clientInfo": {"name": "new", "version": "2"}}
    heard.ask("tools/list", {"_meta": stamped})
    assert told(ear)["client"] == {"name": "new", "version": "2"}


def test_a_call_is_told_once_and_a_call_of_no_tool_is_not(
    ear: socket.socket, heard: McpSession
) -> None:
    assert "error" in heard.ask("tools/call", {"name": "amux.nothing"})
    heard.call("get", path="a.md")
    heard.call("search", query="a")
    assert told(ear) == {
        "schema": 1,
        "event": "tools/call",
        "client": {},
        "tools": ["amux.memory_get"],
    }
    assert heard.close() == 0
    ear.settimeout(0)
    with pytest.raises(BlockingIOError):
        ear.recv(8192)


@pytest.mark.parametrize("witness", ["/nowhere/at/all", "relative.sock", "", 7, None, "/\0"])
def test_a_server_serves_all_the_same_where_nobody_can_be_told(
    side: Side, tmp_path: Path, witness: object
) -> None:
    environ = connection(side, str(tmp_path / "hub.sock"), witness)
    with McpSession(side.spawn_mcp(environ)) as session:
        session.initialize()
        assert len(session.ask("tools/list")["result"]["tools"]) == 5
        assert session.call("get", path="a.md")["content"]
        assert session.close() == 0


def test_an_answer_never_waits_for_a_launcher_that_does_not_read(
    side: Side, tmp_path: Path, ear: socket.socket
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.connect(ear.getsockname())
        with contextlib.suppress(BlockingIOError):  # the queue of the socket is full then
            while True:
                other.send(b"{}", socket.MSG_DONTWAIT)
    environ = connection(side, str(tmp_path / "hub.sock"), ear.getsockname())
    with McpSession(side.spawn_mcp(environ)) as session:
        session.initialize()
        assert len(session.ask("tools/list")["result"]["tools"]) == 5
        assert session.close() == 0


def test_a_resume_without_a_credential_is_told_of_too(
    side: Side, tmp_path: Path, ear: socket.socket
) -> None:
    environ = connection(side, str(tmp_path / "hub.sock"), ear.getsockname(), token="")
    with McpSession(side.spawn_mcp(environ)) as session:
        session.ask("tools/list")
        assert told(ear)["event"] == "tools/list"


def test_a_socket_whose_path_is_longer_than_an_address_is_reached(
    side: Side, tmp_path: Path
) -> None:
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.settimeout(SECONDS)
        ear.bind(str(tmp_path / "short.sock"))
        (tmp_path / "short.sock").rename(folder / "ear.sock")
        environ = connection(side, str(tmp_path / "hub.sock"), str(folder / "ear.sock"))
        with McpSession(side.spawn_mcp(environ)) as session:
            session.ask("tools/list")
            assert told(ear)["event"] == "tools/list"
