"""Each agent asks this run's own memory server for its tools, and the record says so or warns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from amux.launcher.evidence.mcp_reports import NEVER_STARTED
from amux.launcher.session.store import SessionStore
from fixtures.pinned import CLAUDE_VERSIONS, CODEX_VERSIONS, PI_VERSIONS
from fixtures.stages import staged

if TYPE_CHECKING:
    from pathlib import Path

    from amux.launcher.host import Host
    from amux.launcher.session.store import SessionRecord
    from fixtures.stages import Stage

pytestmark = pytest.mark.agents

AGENTS = [("claude", version) for version in CLAUDE_VERSIONS]
AGENTS += [("codex", version) for version in CODEX_VERSIONS]
PRINTS = {"claude": ("-p", "hello"), "codex": ("exec", "--skip-git-repo-check", "hello")}
CLIENTS = {"claude": "claude-code", "codex": "codex-mcp-client"}


def latest(stage: Stage) -> SessionRecord:
    records = SessionStore(stage.host.home).list().records
    return next(one for one in records if one.cwd == str(stage.cwd))


def listed(record: SessionRecord) -> tuple[str, str]:
    (one,) = [one for one in record.seen if one.source.startswith("tools/list")]
    return one.observed, one.contradicts


@pytest.mark.parametrize(("agent", "version"), AGENTS)
def test_the_list_is_seen_before_the_first_turn_of_a_stream_and_in_print_mode(
    tmp_path: Path, shared_host: Host, agent: str, version: str
) -> None:
    with staged(tmp_path, shared_host, agent, version) as stage:
        report, turn = stage.turn()
        (seen,) = [one for one in report.seen if one.source.startswith("tools/list")]
        assert seen.observed.startswith(f"5 listed to {CLIENTS[agent]} ")
        assert turn.tool("memory_search") is not None
        options = ("--executable", str(stage.executable), "--", *stage.options)
        done, _ = stage.amux("launch", agent, *options, *PRINTS[agent])
        assert done.returncode == 0, done.stderr
        assert listed(latest(stage)) == (seen.observed, "")
        assert "memory server" not in done.stderr


PRINTED = [(agent, version, "--version") for agent, version in AGENTS if agent == "claude"]
PRINTED += [(agent, version, "exec --help") for agent, version in AGENTS if agent == "codex"]
PRINTED += [("pi", version, "--help") for version in PI_VERSIONS]


@pytest.mark.parametrize(("agent", "version", "line"), PRINTED)
def test_an_agent_that_only_prints_is_not_said_to_lack_its_tools(
    tmp_path: Path, shared_host: Host, agent: str, version: str, line: str
) -> None:
    with staged(tmp_path, shared_host, agent, version) as stage:
        options = ("--executable", str(stage.executable), "--", *line.split())
        done, turn = stage.amux("launch", agent, *options)
        assert (done.returncode, turn) == (0, None), done.stderr
        assert version in done.stdout or "usage:" in (done.stdout + done.stderr).lower()
        record = latest(stage)
        assert record.binding == "global"
        assert record.seen == ()
        assert NEVER_STARTED not in record.warnings
        assert NEVER_STARTED not in done.stderr


def test_the_sidecars_agent_is_heard_too(tmp_path: Path, shared_host: Host) -> None:
    version = CLAUDE_VERSIONS[-1]
    with staged(tmp_path, shared_host, "claude", version, provider="claude-sdk") as stage:
        report, _ = stage.turn()
    assert any(one.observed.startswith("5 listed to claude-code") for one in report.seen)


@pytest.mark.parametrize("version", CLAUDE_VERSIONS)
def test_a_server_that_was_switched_off_in_claudes_panel_is_refused_in_spite_of_a_remembered_answer(
    tmp_path: Path, shared_host: Host, version: str
) -> None:
    with staged(tmp_path, shared_host, "claude", version) as stage:
        launch = ("launch", "claude", "--executable", str(stage.executable), "--", *stage.options)
        done, turn = stage.amux(*launch, "-p", "hello")
        assert turn is not None
        assert turn.tool("memory_search") is not None, done.stderr
        file = stage.home / ".claude.json"
        config = json.loads(file.read_text())
        project = config.setdefault("projects", {}).setdefault(str(stage.cwd), {})
        project["disabledMcpServers"] = ["amux"]
        file.write_text(json.dumps(config))
        done, turn = stage.amux(*launch, "-p", "hello")
        assert (done.returncode, turn) == (125, None), done.stderr
        assert "the server amux is disabled" in done.stderr
