"""The MCP server inside the real Codex and Claude Code, driven by a scripted model."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from amux.launcher.memory.protocol import render
from amux.launcher.probe.model import Call, Say, ScriptedModel
from amux.launcher.probe.stage import MODEL, STAGES
from amux.materializer.agentside.transport import CONNECT
from fixtures.pinned import CLAUDE_VERSIONS, CODEX_VERSIONS, PI_VERSIONS, pinned
from fixtures.waiting import SECONDS
from tests.agentside.side import SYSTEM

if TYPE_CHECKING:
    from pathlib import Path

    from amux.launcher.probe.model import Answer, ToolOffer, Turn
    from tests.agentside.real_hub import RealHub

AGENTS = [
    *(("codex", version) for version in CODEX_VERSIONS),
    *(("claude", version) for version in CLAUDE_VERSIONS),
]
LONG = "# Topic\n" + "".join(f'- {n}: a "quoted" 记忆 \\ line\n' for n in range(160))


class Mind:
    """Call every tool once, as a model would from what it was offered and told."""

    def __init__(self) -> None:
        self.names = re.findall(r"`(amux_[a-z_]+)`", render("mcp").text)
        self.offers: dict[str, list[ToolOffer]] = {}
        self.seen: list[str] = []

    def __call__(self, turn: Turn) -> Answer:
        """Answer one model request."""
        if turn.tool("amux_memory_get") is None:
            return Say("a request of the agent's own")
        for name in self.names:
            self.offers[name] = [tool for tool in turn.tools if tool.full_name.endswith(name)]
        self.seen = [result.text for result in turn.results]
        steps: tuple[tuple[str, dict[str, object]], ...] = (
            ("get", {"path": "MEMORY.md"}),
            ("upsert", {"path": "topic.md", "content": LONG, "expected_revision": "absent"}),
            ("search", {"query": "QUOTED", "limit": 3}),
            ("get", {"path": "topic.md"}),
            ("continue", {"token": self._last(r"\b[0-9a-f]{32}\b")}),
            ("forget", {"path": "topic.md", "expected_revision": "0" * 64}),
            ("forget", {"path": "topic.md", "expected_revision": self._last(r"[0-9a-f]{64}")}),
        )
        if len(self.seen) == len(steps):
            return Say("all done")
        verb, arguments = steps[len(self.seen)]
        name = "amux_result_continue" if verb == "continue" else f"amux_memory_{verb}"
        (offer,) = self.offers[name]
        return Call(offer, arguments)

    def _last(self, pattern: str) -> str:
        """Return what the last answer holds of this form."""
        return "".join(re.findall(pattern, self.seen[-1])[:1]) if self.seen else ""


def _command(provider: str, executable: Path, server: dict[str, object], home: Path) -> list[str]:
    """Return argv as the providers do for a launch: the server required, its tools in view."""
    if provider == "codex":
        values = {
            **{f"mcp_servers.amux.{name}": value for name, value in server.items()},
            "mcp_servers.amux.required": True,
            "mcp_servers.amux.default_tools_approval_mode": "approve",
            "features.code_mode.direct_only_tool_namespaces": ["mcp__amux"],
        }
        flags = [
            word for name, value in values.items() for word in ("-c", f"{name}={_toml(value)}")
        ]
        return [str(executable), "exec", "--skip-git-repo-check", *flags, "hello"]
    file = home / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"amux": {**server, "alwaysLoad": True}}}))
    return [str(executable), "-p", f"--mcp-config={file}", "--allowedTools=mcp__amux", "hello"]


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {json.dumps(text)}" for name, text in value.items()) + "}"
    return json.dumps(value)


@pytest.mark.agents
@pytest.mark.parametrize(("provider", "version"), AGENTS)
def test_a_real_agent_finds_and_uses_every_tool_by_the_names_in_the_protocol(
    real_hub: RealHub, onefile: Path, tmp_path: Path, provider: str, version: str
) -> None:
    agent = pinned(provider, version)
    server: dict[str, object] = {
        "command": SYSTEM,
        "args": ["-I", "-S", str(onefile), "mcp"],
        "env": real_hub.open_launch("launch-1", tmp_path),
    }
    home = tmp_path / "agent home"
    mind = Mind()
    with ScriptedModel(mind) as model:
        environ = STAGES[provider](home, model.url, path=agent.path)
        done = subprocess.run(
            _command(provider, agent.executable, server, home),
            env=dict(environ),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=SECONDS,
        )
        assert model.failures == []
    assert done.returncode == 0, done.stderr
    assert b"all done" in done.stdout
    assert len(mind.names) >= 5
    assert all(len(offers) == 1 for offers in mind.offers.values())
    shown = mind.offers["amux_memory_search"][0]
    assert (shown.namespace, shown.name) in {
        ("mcp__amux", "amux_memory_search"),
        (None, "mcp__amux__amux_memory_search"),
    }
    missing, _, found, first, second, stale, gone = (
        text.partition("Output:\n")[2] or text for text in mind.seen
    )
    assert json.loads(missing)["revision"] == "absent"
    assert json.loads(found)["matches"][0]["path"] == "topic.md"
    page = first.partition("\n[amux: ")[0]
    assert json.loads(page + second)["text"] == LONG
    assert json.loads(stale)["error"]["code"] == "conflict"
    assert json.loads(gone)["already_absent"] is False
    assert not list((real_hub.home / "memory").rglob("*.md"))


@pytest.mark.agents
@pytest.mark.parametrize("version", CODEX_VERSIONS)
def test_inside_codexs_own_sandbox_the_command_says_so_without_a_wait(
    real_hub: RealHub, onefile: Path, tmp_path: Path, version: str
) -> None:
    # With a Hub that answers: what fails is the sandbox, and nothing else.
    script = (
        "import subprocess, sys, time; began = time.monotonic();"
        "done = subprocess.run(sys.argv[1:], capture_output=True);"
        f"print(done.returncode, time.monotonic() - began < {CONNECT},"
        "done.stderr.decode())"
    )
    (tmp_path / "home").mkdir()
    done = subprocess.run(
        [
            *(str(pinned("codex", version).executable), "sandbox", "--"),
            *(SYSTEM, "-c", script, SYSTEM, "-I", "-S", str(onefile), "memory", "show", "a.md"),
        ],
        env={
            **real_hub.environ,
            "HOME": str(tmp_path / "home"),
            "PATH": pinned("codex", version).path,
        },
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.stdout.startswith(b"5 True "), done.stderr
    assert b"sandbox without network" in done.stdout
    assert b"amux_memory_search" in done.stdout


UPSERT = '"$AMUX_CLI" memory upsert tea.md --expected-revision absent'
COMMANDS = (
    "amux memory show MEMORY.md",
    f"printf '# Tea\\n记忆 green\\n' | {UPSERT}",
    "amux memory search GREEN 记忆",
    'amux memory forget tea.md --expected-revision 0; echo "status $?"',
    """R=$("$AMUX_CLI" memory export tea.md | sha256sum | cut -d" " -f1)
amux memory forget tea.md --expected-revision $R""",
)


@pytest.mark.agents
@pytest.mark.parametrize("version", PI_VERSIONS)
def test_the_real_pi_reaches_memory_by_the_commands_in_the_protocol(
    real_hub: RealHub, onefile: Path, tmp_path: Path, version: str
) -> None:
    for command in ("show", "upsert", "search", "forget"):
        assert f"`amux memory {command} " in render("cli").text
    seen: list[str] = []

    def mind(turn: Turn) -> Answer:
        shell = turn.tool("bash")
        if shell is None:
            return Say("a request of the agent's own")
        seen[:] = [result.text for result in turn.results]
        if len(seen) == len(COMMANDS):
            return Say("all done")
        return Call(shell, {"command": COMMANDS[len(seen)]})

    agent = pinned("pi", version)
    with ScriptedModel(mind) as model:
        environ = {
            **STAGES["pi"](tmp_path / "home", model.url, path=f"{onefile.parent}:{agent.path}"),
            **real_hub.open_launch("launch-1", tmp_path),
            "AMUX_CLI": str(onefile),
        }
        done = subprocess.run(
            [str(agent.executable), "--provider", "scripted", "--model", MODEL, "-p", "hello"],
            env=environ,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=SECONDS,
        )
        assert model.failures == []
    assert done.returncode == 0, done.stderr
    assert b"all done" in done.stdout
    missing, written, found, refused, gone = seen
    assert json.loads(missing)["exists"] is False
    assert json.loads(written)["unchanged"] is False
    assert json.loads(found)["matches"][0]["path"] == "tea.md"
    assert '"code":"invalid_request"' in refused
    assert "status 2" in refused
    assert json.loads(gone)["already_absent"] is False
