from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from amux.materializer.agentside import VERSION, dialects
from amux.materializer.agentside.connection import Connection
from amux.materializer.agentside.errors import Failure
from amux.materializer.agentside.server import serve
from amux.materializer.agentside.toolbox import Ticket
from amux.materializer.agentside.tools import LISTS
from amux.materializer.agentside.transport import LONGEST, Exchange
from amux.materializer.agentside.workers import MOST, WAITING
from fixtures.waiting import SECONDS
from tests.agentside.mcp_session import MODERN, McpSession, error_in
from tests.agentside.scripted_hub import Asked, Documents, JsonObject, ScriptedHub, unix_hub
from tests.agentside.side import TOKEN, Side

TOOLS = ["search", "get", "upsert", "forget"]
FROZEN = Path(__file__).parent / "tools-1.json"


def test_every_version_that_the_official_package_knows_is_spoken() -> None:
    assert dialects.HANDSHAKE == HANDSHAKE_PROTOCOL_VERSIONS
    assert dialects.MODERN == MODERN_PROTOCOL_VERSIONS


@pytest.mark.parametrize("version", HANDSHAKE_PROTOCOL_VERSIONS)
def test_a_published_version_is_agreed_on_as_asked(session: McpSession, version: str) -> None:
    result = session.initialize(version)
    assert result == {
        "protocolVersion": version,
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "amux", "title": "amux memory", "version": VERSION},
    }


@pytest.mark.parametrize("asked", ["1999-01-01", "2099-12-31", "2026-07-28", "zzz", "", 7, None])
def test_an_unknown_version_is_offered_the_newest_of_the_handshake(
    session: McpSession, asked: object
) -> None:
    answer = session.ask("initialize", {"protocolVersion": asked})
    assert answer["result"]["protocolVersion"] == "2025-11-25"
    assert session.ask("initialize")["result"]["protocolVersion"] == "2025-11-25"


def test_a_stateless_client_needs_no_handshake(session: McpSession, hub: ScriptedHub) -> None:
    found = session.ask("server/discover", {"_meta": MODERN})["result"]
    assert found["supportedVersions"] == ["2026-07-28"]
    assert found["resultType"] == "complete"
    assert found["ttlMs"] > 0
    listed = session.ask("tools/list", {"_meta": MODERN})["result"]
    assert len(listed["tools"]) == 5
    assert (listed["resultType"], listed["cacheScope"]) == ("complete", "public")
    params = {"name": "amux.memory_get", "arguments": {"path": "a.md"}, "_meta": MODERN}
    result = session.ask("tools/call", params)["result"]
    assert result["resultType"] == "complete"
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "amux"
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert "get" in hub.paths()


def test_a_handshake_stays_one_whatever_is_stamped_on_it(session: McpSession) -> None:
    params = {"protocolVersion": "2025-06-18", "_meta": MODERN}
    result = session.ask("initialize", params)["result"]
    assert result["protocolVersion"] == "2025-06-18"
    assert "resultType" not in result


def test_a_stateless_request_of_an_unknown_version_is_told_which_there_are(
    session: McpSession,
) -> None:
    meta = {**MODERN, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    error = session.ask("tools/list", {"_meta": meta})["error"]
    assert error["code"] == -32022
    assert error["data"]["requested"] == "2099-01-01"
    assert "2026-07-28" in error["data"]["supported"]
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    assert session.ask("tools/list", {"_meta": meta})["error"]["code"] == -32602
    number = {**MODERN, "io.modelcontextprotocol/protocolVersion": 7}
    assert session.ask("tools/list", {"_meta": number})["error"]["code"] == -32602


@pytest.mark.parametrize(
    "method",
    [
        "server/discover",
        "resources/list",
        "prompts/list",
        "logging/setLevel",
        "completion/complete",
        "sampling/createMessage",
        "",
        "tools/call/x",
        "notifications/initialized",
    ],
)
def test_an_unknown_method_answers_32601_and_the_server_goes_on(
    session: McpSession, method: str
) -> None:
    assert session.ask(method)["error"]["code"] == -32601
    assert session.ask(method, {})["error"]["code"] == -32601
    assert session.ask("ping")["result"] == {}


@pytest.mark.parametrize("method", ["ping", "logging/setLevel"])
def test_a_method_that_the_stateless_version_took_out_is_unknown_there(
    session: McpSession, method: str
) -> None:
    assert session.ask(method, {"_meta": MODERN})["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"not json", -32700),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "pi', -32700),
        (b"\xff\xfe\x00", -32700),
        (b"[" * 200_000, -32700),
        (b"x" * (4 * 1024 * 1024 + 1), -32700),
        (b"[]", -32600),
        (b"7", -32600),
        (b"null", -32600),
        (b'"ping"', -32600),
        (b'{"jsonrpc": "2.0", "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 7}', -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": [1], "method": "ping"}', -32600),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', -32600),
    ],
)
def test_a_malformed_frame_is_answered_and_the_server_goes_on(
    session: McpSession, frame: bytes, code: int
) -> None:
    session.initialize("2025-06-18")
    session.send(frame)
    answer = session.receive()
    assert (answer["error"]["code"], answer["id"]) == (code, None)
    assert session.ask("ping", ident="after")["result"] == {}


def test_a_frame_beyond_four_mebibytes_is_named_too_long(session: McpSession) -> None:
    session.send({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": "x" * 4 * 1024 * 1024})
    assert "longer than" in session.receive()["error"]["message"]
    session.send({"jsonrpc": "2.0", "id": 2, "method": "ping", "params": "x" * 4 * 1000 * 1000})
    assert session.receive()["id"] == 2


def test_whatever_else_the_process_prints_goes_to_standard_error(session: McpSession) -> None:
    session.initialize()
    descriptors = Path(f"/proc/{session.process.pid}/fd")
    assert (descriptors / "1").readlink() == (descriptors / "2").readlink()


def test_a_call_that_was_cancelled_before_it_began_reaches_no_hub(
    hub: ScriptedHub, tmp_path: Path
) -> None:
    connection = Connection(
        url=f"unix:{tmp_path}/home/hub.sock", token=TOKEN, ca_pem=None, binding=None
    )
    ticket, exchange = Ticket(), Exchange(connection)
    ticket.cancel()
    ticket.hold(exchange)
    with pytest.raises(Failure, match="cancelled"):
        exchange.send("POST", "/v1/memory/upsert", b"{}")
    assert hub.asked == []


def test_blank_lines_answers_and_notifications_are_not_answered(session: McpSession) -> None:
    for frame in (
        b"",
        b"  \r",
        b'{"jsonrpc": "2.0", "id": 9, "result": {}}',
        b'{"jsonrpc": "2.0", "id": 9, "error": {"code": 1, "message": "x"}}',
        b'{"jsonrpc": "2.0", "method": "notifications/whatever", "params": [1]}',
        b'{"jsonrpc": "2.0", "method": "notifications/cancelled"}',
        b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": [1]}}',
        b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 404}}',
    ):
        session.send(frame)
    assert session.ask("ping")["result"] == {}
    session.send(b'{"jsonrpc": "2.0", "id": "a\\ud800\\n", "method": "ping"}\r')
    assert session.receive()["id"] == "a\ud800\n"
    assert len(session.lines) == 2


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26"])
def test_a_batch_of_an_old_version_is_answered_in_one_frame(
    session: McpSession, hub: ScriptedHub, version: str
) -> None:
    session.initialize(version)
    session.send(
        [
            {"jsonrpc": "2.0", "id": 1, "method": "ping"},
            {"jsonrpc": "2.0", "method": "notifications/whatever"},
            {
                "jsonrpc": "2.0",
                "id": 2,
                "method": "tools/call",
                "params": {"name": "amux.memory_get", "arguments": {"path": "a.md"}},
            },
            7,
            {"jsonrpc": "2.0", "id": 3, "method": "nonsense"},
        ]
    )
    answers = session.receive()
    found = {answer["id"]: answer.get("error", {}).get("code", 0) for answer in answers}
    assert found == {1: 0, 2: 0, 3: -32601, None: -32600}
    session.send([{"jsonrpc": "2.0", "method": "notifications/whatever"}])
    assert session.ask("ping")["result"] == {}
    assert "get" in hub.paths()


def test_the_tool_list_is_the_one_that_sessions_have_frozen(session: McpSession) -> None:
    # A changed list would change the prefix of every resumed conversation.
    listed = session.ask("tools/list")["result"]["tools"]
    assert json.dumps(listed) == json.dumps(json.loads(FROZEN.read_text()))


def test_the_tool_list_is_the_same_without_a_hub_while_disabled_and_without_a_connection(
    side: Side, hub: ScriptedHub, documents: Documents
) -> None:
    lists, answered = [], []
    for env in ({}, {"AMUX_CONNECTION": "/nowhere"}, {"AMUX_HOME": "/nowhere"}):
        for documents.granted in (True, False):
            with McpSession(side.spawn_mcp(env)) as session:
                session.initialize()
                lists.append(session.ask("tools/list")["result"])
                # What differs is shown by a call: the server's own question may come too late.
                called = {"name": "amux.memory_get", "arguments": {"path": "a.md"}}
                session.ask("tools/call", called)
                answered.append("get" in hub.paths())
                hub.asked.clear()
    assert all(found == lists[0] for found in lists)
    assert answered == [True, True, False, False, False, False]


def test_each_tool_says_truly_what_it_may_change(session: McpSession) -> None:
    tools = {tool["name"]: tool for tool in session.ask("tools/list")["result"]["tools"]}
    changing = {
        name: tool["annotations"]["destructiveHint"]
        for name, tool in tools.items()
        if not tool["annotations"]["readOnlyHint"]
    }
    assert changing == {"amux.memory_upsert": False, "amux.memory_forget": True}
    for tool in tools.values():
        assert tool["annotations"]["openWorldHint"] is False
        schema = tool["inputSchema"]
        assert schema["additionalProperties"] is False
        assert set(schema["required"]) <= set(schema["properties"])
        assert all(prop["description"] for prop in schema["properties"].values())


def test_the_capability_is_asked_once_at_start_and_a_refusal_is_told_on_standard_error(
    side: Side, hub: ScriptedHub, documents: Documents
) -> None:
    documents.granted = False
    with McpSession(side.spawn_mcp()) as session:
        session.initialize()
        assert b"memory_disabled" in session.complaint()
        assert error_in(session.call("get", path="a.md"))["code"] == "memory_disabled"
        documents.granted = True
        assert session.call("get", path="a.md")["isError"] is False
    assert hub.paths().count("capability") == 1


def test_memory_that_is_off_is_told_at_start_although_the_hub_answers(
    side: Side, tmp_path: Path
) -> None:
    off = {"enabled": False, "binding": "global", "limits": {}}
    with (
        unix_hub(tmp_path / "home/hub.sock", lambda _: off),
        McpSession(side.spawn_mcp()) as session,
    ):
        assert b"memory_disabled" in session.complaint()


def test_a_silent_hub_delays_neither_the_handshake_nor_the_tool_list(
    side: Side, tmp_path: Path
) -> None:
    asked = threading.Event()

    def silent(_: Asked) -> None:
        asked.set()

    call = {"name": "amux.memory_get", "arguments": {"path": "a.md"}}
    with McpSession(side.spawn_mcp()) as session:
        with unix_hub(tmp_path / "home/hub.sock", silent):
            session.send({"jsonrpc": "2.0", "id": 900, "method": "tools/call", "params": call})
            assert asked.wait(SECONDS)
            session.initialize()
            assert len(session.ask("tools/list")["result"]["tools"]) == 5
        answer = session.receive()  # once the Hub has gone
    assert answer["id"] == 900
    assert error_in(answer["result"])["code"] == "unavailable"


def test_calls_run_beside_each_other(side: Side, tmp_path: Path) -> None:
    documents = Documents()
    second = threading.Event()

    def script(asked: Asked) -> JsonObject:
        path = asked.body.get("path")
        if path == "slow.md":
            assert second.wait(SECONDS)
        if path == "quick.md":
            second.set()
        return documents(asked)

    with unix_hub(tmp_path / "home/hub.sock", script), McpSession(side.spawn_mcp()) as session:
        session.initialize()
        for ident, path in (("slow", "slow.md"), (2, "quick.md")):
            params = {"name": "amux.memory_get", "arguments": {"path": path}}
            session.send({"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": params})
        answers = [session.receive() for _ in range(2)]
    assert {answer["id"] for answer in answers} == {"slow", 2}
    assert all(answer["result"]["isError"] is False for answer in answers)


def test_fifty_calls_at_once_are_all_answered_once(session: McpSession, hub: ScriptedHub) -> None:
    session.initialize()
    for ident in range(50):
        params = {"name": "amux.memory_get", "arguments": {"path": f"{ident}.md"}}
        session.send({"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": params})
    answers = [session.receive() for _ in range(50)]
    assert sorted(answer["id"] for answer in answers) == list(range(50))
    for answer in answers:
        assert answer["result"]["structuredContent"]["path"] == f"{answer['id']}.md"
    assert hub.paths().count("get") == 50


def test_more_calls_than_can_wait_are_refused_and_the_rest_are_answered(
    side: Side, tmp_path: Path
) -> None:
    full = threading.Event()
    documents = Documents()

    def script(asked: Asked) -> JsonObject:
        assert full.wait(SECONDS)
        return documents(asked)

    with unix_hub(tmp_path / "home/hub.sock", script), McpSession(side.spawn_mcp()) as session:
        params = {"name": "amux.memory_get", "arguments": {"path": "a.md"}}
        for ident in range(MOST + WAITING + 20):
            session.send({"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": params})
        refused = [session.receive() for _ in range(20 - MOST)]
        assert {answer["error"]["code"] for answer in refused} == {-32603}
        full.set()
        rest = [session.receive() for _ in range(MOST + WAITING + MOST)]
        assert sum("result" in answer for answer in rest) >= WAITING
        assert session.ask("ping")["result"] == {}


def test_a_cancelled_call_is_not_answered_and_lets_go_of_the_hub(
    side: Side, tmp_path: Path
) -> None:
    asked = threading.Event()

    def script(request: Asked) -> JsonObject | None:
        if request.body.get("path") == "slow.md":
            asked.set()
            return None
        return Documents()(request)

    params = {"name": "amux.memory_get", "arguments": {"path": "slow.md"}}
    with unix_hub(tmp_path / "home/hub.sock", script):
        with McpSession(side.spawn_mcp()) as session:
            session.initialize()
            call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
            session.send(call)
            assert asked.wait(SECONDS)
            assert session.ask("tools/call", params, ident=7)["error"]["code"] == -32600
            cancel = {"requestId": 7, "reason": "the person pressed Escape"}
            session.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel})
            assert session.ask("ping")["result"] == {}
            # Ends: the call that nobody answers is no longer waited for.
            assert session.close(within=LONGEST / 2) == 0
        assert sum(b'"id":7,' in line for line in session.lines) == 1


def test_the_end_of_input_lets_running_calls_finish(side: Side, tmp_path: Path) -> None:
    documents = Documents()
    asked, ended = threading.Event(), threading.Event()

    def script(request: Asked) -> JsonObject:
        if request.path.endswith("upsert"):
            asked.set()
            assert ended.wait(SECONDS)
        return documents(request)

    arguments = {"path": "a.md", "content": "x", "expected_revision": "absent"}
    params = {"name": "amux.memory_upsert", "arguments": arguments}
    with unix_hub(tmp_path / "home/hub.sock", script), McpSession(side.spawn_mcp()) as session:
        session.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        assert asked.wait(SECONDS)
        assert session.process.stdin is not None
        session.process.stdin.close()
        ended.set()
        assert session.receive()["result"]["isError"] is False
        assert session.close() == 0
    assert documents.texts == {"a.md": "x"}


def test_a_last_frame_without_an_end_of_line_is_answered(session: McpSession) -> None:
    assert session.process.stdin is not None
    session.process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}')
    session.process.stdin.close()
    assert session.receive()["result"] == {}
    assert session.close() == 0


def test_a_client_that_stops_reading_ends_the_server_without_a_traceback(side: Side) -> None:
    process = side.spawn_mcp()
    assert process.stdout is not None
    assert process.stdin is not None
    process.stdout.close()
    process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    process.stdin.flush()
    assert process.wait(SECONDS) == 1
    process.stdin.close()
    assert process.stderr is not None
    with process.stderr:
        assert b"Traceback" not in process.stderr.read()


def test_a_non_blocking_pair_of_pipes_is_served(side: Side) -> None:
    process = side.spawn_mcp()
    with McpSession(process) as session:
        assert process.stdin is not None
        # The flag belongs to the pipe's end, which the server shares with whoever made it.
        for fd in Path(f"/proc/{process.pid}/fd").iterdir():
            if fd.name in {"0", "1"}:
                flags = os.O_RDONLY if fd.name == "0" else os.O_WRONLY
                other = os.open(fd, flags | os.O_NONBLOCK)
                os.set_blocking(other, False)
                os.close(other)
        assert session.ask("ping")["result"] == {}


@pytest.mark.parametrize(
    ("params", "word"),
    [
        (None, "name"),
        ([], "name"),
        ({}, "name"),
        ({"name": 7}, "name"),
        ({"name": "amux.memory_drop"}, "Unknown tool: amux.memory_drop"),
        ({"name": "amux.memory_get", "arguments": [1]}, "object"),
    ],
)
def test_a_call_of_no_tool_is_an_error_of_the_protocol(
    session: McpSession, params: object, word: str
) -> None:
    error = session.ask("tools/call", params)["error"]
    assert error["code"] == -32602
    assert word in error["message"]


@pytest.mark.parametrize(
    ("tool", "arguments", "word"),
    [
        ("get", {}, "path"),
        ("get", {"path": None}, "path"),
        ("get", {"path": 7}, "path"),
        ("get", {"path": "a.md", "start_line": "two"}, "start_line"),
        ("get", {"path": "a.md", "start_line": 1.5}, "start_line"),
        ("get", {"path": "a.md", "start_line": True}, "start_line"),
        ("get", {"path": "a.md", "offset": "1" * 19}, "offset"),
        ("get", {"path": "a.md", "offset": "²"}, "offset"),
        ("get", {"path": "a.md", "offset": 1e400}, "offset"),
        ("get", {"path": "a.md", "scope": "principal:bob"}, "scope"),
        ("search", {"query": ["a"]}, "query"),
        ("upsert", {"path": "a.md", "content": "x"}, "expected_revision"),
        ("upsert", {"path": "a.md", "content": "\ud800", "expected_revision": "absent"}, "half"),
        ("forget", {"path": "a.md"}, "expected_revision"),
    ],
)
def test_wrong_arguments_are_the_tools_own_error_that_names_them(
    session: McpSession, hub: ScriptedHub, tool: str, arguments: dict[str, Any], word: str
) -> None:
    error = error_in(session.call(tool, **arguments))
    assert error["code"] == "invalid_request"
    assert word in error["message"]
    assert not set(hub.paths()) & set(TOOLS)


def test_arguments_as_models_write_them_are_taken(session: McpSession, hub: ScriptedHub) -> None:
    session.call("get", path="a.md", start_line=None, end_line="5", offset=3.0)
    (asked,) = (asked for asked in hub.asked if asked.path.endswith("get"))
    assert asked.body == {"path": "a.md", "end_line": 5, "offset": 3}


def test_a_small_answer_comes_as_text_and_structured_and_to_an_old_client_as_text(
    session: McpSession, hub: ScriptedHub
) -> None:
    session.initialize("2025-06-18")
    result = session.call("get", path="a.md")
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    session.initialize("2025-03-26")
    result = session.call("get", path="a.md")
    assert "structuredContent" not in result
    assert json.loads(result["content"][0]["text"])["revision"] == "absent"
    assert hub.asked


def test_help_and_stray_words_end_without_serving(side: Side) -> None:
    assert side.run("mcp", "--help").stdout.startswith(b"usage: amux mcp")
    assert side.run("mcp", "serve").returncode == 2


@pytest.mark.parametrize("words", [("--tools",), ("--tools", "0"), ("--tools", "1", "x"), ("x",)])
def test_a_list_of_tools_that_this_amux_does_not_know_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(Failure) as refused:
        serve(words, {})
    assert refused.value.code == "invalid_request"


def test_the_list_that_a_session_began_with_is_served(side: Side) -> None:
    process = Side((*side.command, "mcp", "--tools=1"), side.environ, side.cwd)
    asked = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'
    listed = json.loads(process.run(stdin=asked).stdout)["result"]["tools"]
    assert json.dumps(listed) == json.dumps(LISTS["1"])


def test_the_first_list_is_kept_for_sessions_that_began_with_it() -> None:
    assert json.dumps(LISTS["1"]) == json.dumps(json.loads(FROZEN.read_text()))
