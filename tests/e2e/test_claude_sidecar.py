"""The sidecar on `claude-agent-sdk`: the same guarantees on the wire as the terminal agent's."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from amux.launcher.errors import MemoryNotIsolated
from amux.launcher.memory.protocol import render
from fixtures.pinned import CLAUDE_VERSIONS
from fixtures.stages import managed_by, occurrences, staged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from amux.launcher.host import Host
    from fixtures.stages import Stage

pytestmark = [pytest.mark.agents, pytest.mark.parametrize("version", CLAUDE_VERSIONS)]

PROTOCOL = render("mcp").text
SECTION = "persistent file-based memory"
ON = {"env": {"CLAUDE_CODE_DISABLE_AUTO_MEMORY": "0"}}


@pytest.fixture
def stage(tmp_path: Path, host: Host, version: str) -> Iterator[Stage]:
    with staged(tmp_path, host, "claude", version, provider="claude-sdk") as made:
        yield made


def test_the_merged_text_arrives_once_on_a_fresh_launch_and_on_a_resume(
    stage: Stage, version: str
) -> None:
    settings = stage.home / ".claude" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps(ON))
    before = stage.print_of("home/.claude/settings.json")
    report, first = stage.turn("--append-system-prompt", "Be brief.")
    merged = f"Be brief.\n\n{PROTOCOL}"
    assert occurrences(first, merged) == occurrences(first, PROTOCOL) == 1
    assert merged in first.system
    assert occurrences(first, SECTION) == 0
    assert first.tool("amux_memory_search") is not None
    assert (report.provider, report.agent_version) == ("claude-sdk", version)
    assert [one.observed for one in report.controls][:2] == ["off", "connected"]
    native = stage.bare("-p", "and now?", f"--resume={report.native_id}")
    assert occurrences(native, SECTION) == 1
    resumed, second = stage.turn(session=report.session)
    assert second.body["system"] == first.body["system"]
    assert occurrences(second, PROTOCOL) == 1
    assert len(second.user) > 1
    assert resumed.native_id == report.native_id
    assert stage.print_of("home/.claude/settings.json") == before


@pytest.mark.root
def test_a_managed_file_fails_the_sidecar_too(stage: Stage, tmp_path: Path, version: str) -> None:
    del version
    managed = replace(stage, executable=managed_by(tmp_path, stage.executable, ON))
    with pytest.raises(MemoryNotIsolated, match="policySettings"):
        managed.turn()
    assert stage.model.turns == []
