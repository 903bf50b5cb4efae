"""A conversation of amux is found by what Claude resumes, however the arguments name it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Final

import pytest

from amux.launcher.errors import MemoryRequired
from amux.launcher.memory.protocol import render
from amux.launcher.session.store import SessionStore
from fixtures.claude_home import ready, settled
from fixtures.pinned import CLAUDE_VERSIONS
from fixtures.stages import AMUX, occurrences, staged
from fixtures.terminal import terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from amux.launcher.host import Host
    from amux.launcher.probe.model import Turn
    from fixtures.stages import Stage

pytestmark = [pytest.mark.agents, pytest.mark.parametrize("version", CLAUDE_VERSIONS)]

PROTOCOL: Final = render("mcp").text
SENTINEL: Final = "ANN-LIKES-TEA"


@pytest.fixture
def stage(tmp_path: Path, shared_host: Host, version: str) -> Iterator[Stage]:
    with staged(tmp_path, shared_host, "claude", version) as made:
        settled(made)
        yield made


def remembering(stage: Stage) -> None:
    """Give the folder a native memory, as Claude would have left it."""
    slug = "".join(one if one.isalnum() else "-" for one in str(stage.cwd))
    folder = stage.home / ".claude" / "projects" / slug / "memory"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "MEMORY.md").write_text(f"- {SENTINEL}\n")


def transcript(stage: Stage, native_id: str | None) -> Path:
    (found,) = (stage.home / ".claude" / "projects").glob(f"*/{native_id}.jsonl")
    return found


def assert_bound(turn: Turn, prompts: int) -> None:
    assert (occurrences(turn, PROTOCOL), occurrences(turn, SENTINEL)) == (1, 0)
    assert turn.tool("amux_memory_search") is not None
    assert sum("prompt" in text for text in turn.user) == prompts


def test_continue_and_a_path_open_the_session_that_amux_knows(stage: Stage, version: str) -> None:
    del version
    remembering(stage)
    first, _ = stage.turn(say="prompt 1")
    continued, turn = stage.turn("--continue", say="prompt 2")
    assert (continued.session, continued.native_id) == (first.session, first.native_id)
    assert_bound(turn, 2)
    path = transcript(stage, first.native_id)
    by_path, turn = stage.turn("--resume", str(path), say="prompt 3")
    assert (by_path.session, by_path.resumed) == (first.session, True)
    assert_bound(turn, 3)
    done, turn_of_command = stage.amux(
        "launch", "claude", "--executable", str(stage.executable), "--", *stage.options,
        "-c", "-p", "prompt 4",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert turn_of_command is not None
    assert_bound(turn_of_command, 4)
    copy = stage.home / "kept.jsonl"
    shutil.copy(path, copy)
    from_copy, turn = stage.turn("--resume", str(copy), say="prompt 5")
    assert from_copy.session == first.session
    assert_bound(turn, 5)


def test_the_conversation_written_last_is_continued_although_amux_knows_an_older_one(
    stage: Stage, version: str
) -> None:
    del version
    known, _ = stage.turn(say="prompt of amux")
    stage.bare("-p", "native prompt")
    report, turn = stage.turn("--continue", say="prompt more")
    assert report.binding is None
    assert report.native_id != known.native_id
    assert any("native prompt" in text for text in turn.user)
    assert occurrences(turn, PROTOCOL) == 0


def seen_in(stage: Stage, native_id: str | None) -> dict[str, str]:
    """Return what the transcript showed; the memory server's own word is another source."""
    seen = stage.record(native_id).seen
    return {one.control: one.observed for one in seen if one.source.startswith("transcript")}


def test_the_transcript_shows_what_was_sent_where_the_version_stores_it(
    stage: Stage, version: str
) -> None:
    remembering(stage)
    report, _ = stage.turn(say="prompt 1")
    stored = {
        "native memory": "absent",
        "protocol": "once",
        "memory tools": "5 offered",
        "instructions": "once",
    }
    seen = seen_in(stage, report.native_id)
    lacking = dict.fromkeys(("native memory", "protocol"), "not stored")
    assert seen == (stored if version == "2.1.332" else lacking)
    verified, _ = stage.amux("sessions", "verify", report.session, "--json")
    assert verified.returncode == 0, verified.stderr


def test_a_conversation_that_read_native_memory_without_amux_is_told_or_refused(
    stage: Stage, version: str
) -> None:
    remembering(stage)
    first, _ = stage.turn(say="prompt 1")
    stage.bare("-p", "prompt 2", "--resume", str(first.native_id))
    stored = version == "2.1.332"
    if stored:
        with pytest.raises(MemoryRequired, match="continued without amux"):
            stage.turn(say="prompt 3", session=first.session, require_memory=True)
    resumed, turn = stage.turn(say="prompt 3", session=first.session)
    told = [text for text in resumed.warnings if "read Claude's own memory" in text]
    assert len(told) == int(stored)
    assert occurrences(turn, PROTOCOL) == 1
    assert occurrences(turn, SENTINEL) == int(stored)
    assert [one.observed for one in resumed.seen if one.control == "native memory"] == (
        ["present"] * stored
    )
    forked, turn = stage.turn(say="prompt 4", session=first.session, fork=True)
    assert occurrences(turn, PROTOCOL) == 1
    record = SessionStore(stage.host.home).load(forked.session)
    assert (record.failure, record.state) == ("", "ended")


def test_a_conversation_picked_on_the_screen_has_the_protocol_and_the_tools(
    stage: Stage, version: str
) -> None:
    del version
    argv = (str(AMUX), "launch", "claude", "--executable", str(stage.executable), "--")
    with terminal((*argv, *stage.options), stage.amux_environment, stage.cwd) as screen:
        ready(screen)
        screen.enter("prompt 1", lambda: bool(_asked(stage, "prompt 1")))
        screen.shows("ok")
        screen.leave("/exit")
    with terminal((*argv, *stage.options, "--resume"), stage.amux_environment, stage.cwd) as screen:
        screen.shows("prompt 1")
        screen.press("\r")
        ready(screen)
        screen.enter("prompt 2", lambda: bool(_asked(stage, "prompt 2")))
        screen.leave("/exit")
    assert_bound(_asked(stage, "prompt 2")[-1], 2)
    newest, *_ = [
        one for one in SessionStore(stage.host.home).list().records if one.cwd == str(stage.cwd)
    ]
    assert (newest.bound, newest.native_id) == (True, "")
    assert any("picked in Claude" in text for text in newest.warnings)


def _asked(stage: Stage, text: str) -> list[Turn]:
    return [one for one in stage.model.turns if text in json.dumps(one.user) and one.tools]
