"""What an agent says while it runs: new evidence is told once, a contradiction ends the run."""

from __future__ import annotations

import pytest

from launcher.errors import ChannelError
from launcher.watch import Watcher
from providers.base import Confirmed, Evidence
from providers.claude import ClaudeProvider

INIT = {"type": "system", "subtype": "init", "mcp_servers": [], "tools": []}


def test_evidence_is_told_once_and_a_contradiction_once() -> None:
    told: list[Confirmed] = []
    refused: list[str] = []
    absent = Evidence(control="memory tools", observed="absent", source="init mcp_servers")
    watcher = Watcher(ClaudeProvider(), (absent,), told.append, refused.append)
    for message in ({"type": "assistant"}, INIT, INIT):
        watcher(message)
    (once,) = told
    assert [one.control for one in once.evidence] == ["auto memory", "memory tools offered"]
    contradiction = {**INIT, "memory_paths": {"auto": "/home/ann/.claude/memory/"}}
    with pytest.raises(ChannelError, match="/home/ann/"):
        watcher(contradiction)
    watcher(contradiction)
    (reason,) = refused
    assert "/home/ann/.claude/memory/" in reason
    watcher({**INIT, "tools": ["mcp__amux__amux_memory_get"]})
    assert len(told) == 1
