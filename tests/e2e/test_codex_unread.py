"""Codex's own memories are said to be left as they are, once in a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fixtures.pinned import CODEX_VERSIONS
from fixtures.stages import occurrences, staged

if TYPE_CHECKING:
    from pathlib import Path

    from amux.launcher.host import Host

pytestmark = [pytest.mark.agents, pytest.mark.parametrize("version", CODEX_VERSIONS)]


def test_a_new_conversation_says_once_how_much_of_codexs_memory_it_leaves_unread(
    tmp_path: Path, host: Host, version: str
) -> None:
    with staged(tmp_path, host, "codex", version) as stage:
        memories = stage.home / ".codex" / "memories"
        (memories / "rollout_summaries").mkdir(parents=True)
        for name in ("MEMORY.md", "memory_summary.md", "rollout_summaries/one.md"):
            (memories / name).write_text("NATIVE-SENTINEL")
        before = stage.print_of("home/.codex/memories")
        report, turn = stage.turn()
        said = [text for text in report.warnings if "own memory is off" in text]
        (text,) = said
        assert "3 files of it are not read in this conversation and left alone" in text
        assert text.endswith(str(memories))
        assert occurrences(turn, "NATIVE-SENTINEL") == 0
        again, _ = stage.turn(session=report.session)
        assert not any("own memory is off" in text for text in again.warnings)
        assert stage.print_of("home/.codex/memories") == before
