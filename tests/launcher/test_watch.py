"""What an agent says while it runs: new evidence is told once, a contradiction ends the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from amux.launcher.errors import ChannelError
from amux.launcher.evidence.output import Watcher
from amux.providers.base import VERSION, Confirmed, Evidence
from amux.providers.claude import ClaudeProvider

if TYPE_CHECKING:
    from amux.providers.base import Sighting

AMUX = [{"name": "amux", "status": "connected"}]
INIT = {
    "type": "system",
    "subtype": "init",
    "mcp_servers": AMUX,
    "tools": ["mcp__amux__amux_memory_search"],
}


def test_evidence_is_told_once_and_a_contradiction_once() -> None:
    told: list[Confirmed] = []
    refused: list[str] = []
    noticed: list[tuple[Sighting, ...]] = []
    known = Evidence(control="memory tools", observed="connected", source="init mcp_servers")
    watcher = Watcher(ClaudeProvider(), (known,), told.append, refused.append, noticed.append)
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
    watcher({**INIT, "tools": []})
    assert len(told) == 1
    assert noticed == []


def test_a_conversation_without_a_memory_tool_is_noticed_once_and_goes_on() -> None:
    noticed: list[tuple[Sighting, ...]] = []
    refused: list[str] = []
    told: list[Confirmed] = []
    watcher = Watcher(ClaudeProvider(), (), told.append, refused.append, noticed.append)
    pending = [{"name": "amux", "status": "pending"}]
    watcher({**INIT, "tools": [], "mcp_servers": pending})
    assert noticed == []
    for _ in range(2):
        watcher({**INIT, "tools": ["Bash"]})
    ((none,),) = noticed
    assert (none.control, none.observed) == ("memory tools", "none offered")
    assert "none of the memory tools in this conversation" in none.contradicts
    assert refused == []
    said = {one.observed for evidence in told for one in evidence.evidence}
    assert "0" in said
    assert "connected" not in said


def test_an_agent_that_says_it_is_another_version_than_was_launched_is_refused() -> None:
    refused: list[str] = []
    known = Evidence(control=VERSION, observed="2.1.197", source="asked")
    watcher = Watcher(ClaudeProvider(), (known,), lambda _: None, refused.append, lambda _: None)
    watcher({**INIT, "claude_code_version": "2.1.197"})
    assert refused == []
    with pytest.raises(ChannelError, match=r"says that it is 2\.1\.332"):
        watcher({**INIT, "claude_code_version": "2.1.332"})
    (reason,) = refused
    assert "planned for 2.1.197" in reason
