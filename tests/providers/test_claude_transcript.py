"""What lines of Claude's transcript show, and what they do not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from amux.providers.base import TranscriptPart
from amux.providers.claude import ClaudeProvider
from fixtures.requests import PROTOCOL, request

if TYPE_CHECKING:
    from amux.providers.base import Sighting

CLAUDE = ClaudeProvider()
TEXT = f"be brief\n\n{PROTOCOL}"
TOOL = {"name": "mcp__amux__amux_memory_get"}


def shape(name: str, system: str, *tools: dict[str, str]) -> dict[str, Any]:
    blocks = [{"type": "text", "text": "You are Claude."}, {"type": "text", "text": system}]
    body = {"system": blocks, "tools": [{"name": "Bash"}, *tools]}
    return {"type": "api-request-shape", "shapeHash": name, "shape": body}


def asked(name: str, who: str = "sdk") -> dict[str, Any]:
    return {"type": "api-request", "shapeHash": name, "querySource": who}


def said(name: str, kind: str = "text") -> dict[str, Any]:
    message = {"id": name, "content": [{"type": kind}]}
    return {"type": "assistant", "version": "2.1.332", "message": message}


def files(*kinds: str) -> dict[str, Any]:
    listed = [{"path": f"/x/{kind}", "type": kind} for kind in kinds]
    return {"type": "attachment", "attachment": {"type": "instructions", "files": listed}}


def hooked(text: str) -> dict[str, Any]:
    attachment = {"type": "hook_additional_context", "content": [text]}
    return {"type": "attachment", "isSidechain": True, "attachment": attachment}


BOUNDARY = {"type": "system", "subtype": "compact_boundary"}


def read(
    *lines: dict[str, Any], ours: bool = True, main: bool = True
) -> dict[str, tuple[str, str, int]]:
    """Return what was observed of each control, what it contradicts, and at which turn."""
    content = b"no json\n[]\n" + b"".join(json.dumps(one).encode() + b"\n" for one in lines)
    part = TranscriptPart(
        path="/home/ann/.claude/projects/x/agent-1.jsonl",
        content=content,
        protocol=PROTOCOL,
        instructions=TEXT,
        ours=ours,
        main=main,
    )
    seen: tuple[Sighting, ...] = CLAUDE.read_transcript(part)
    return {one.control: (one.observed, one.contradicts, one.turn) for one in seen}


def test_a_request_as_it_was_sent_shows_text_tools_and_native_memory() -> None:
    seen = read(
        files("Project"), shape("a", TEXT, TOOL), asked("a"), said("1", "tool_use"), asked("a"),
        said("2"), said("2"),
    )  # fmt: skip
    assert seen == {
        "native memory": ("absent", "", 1),
        "protocol": ("once", "", 1),
        "memory tools": ("1 offered", "", 1),
        "instructions": ("once", "", 1),
    }


def test_a_request_of_the_conversation_without_the_text_or_the_tools_contradicts() -> None:
    seen = read(shape("a", "be brief"), asked("a"), said("1"))
    assert seen["protocol"][0] == seen["instructions"][0] == "absent"
    assert "the protocol was in no request" in seen["protocol"][1]
    assert "none of the memory tools" in seen["memory tools"][1]
    twice = read(shape("a", TEXT + PROTOCOL, TOOL), asked("a"), said("1"))
    assert twice["protocol"][0] == "2 times"
    assert "not once" in twice["protocol"][1]
    mixed = read(shape("a", TEXT, TOOL), asked("a"), shape("b", "", TOOL), asked("b"))
    assert mixed["protocol"][0] == "0 times, 1 times"


def test_requests_for_titles_and_the_like_are_not_the_conversations_own() -> None:
    seen = read(shape("t", "Write a title."), asked("t", "generate_session_title"), said("1"))
    assert seen["protocol"] == ("not stored", "", 1)
    assert "memory tools" not in seen
    assert "protocol" in read(shape("a", TEXT), asked("a", "repl_main_thread:outputStyle:x"))


def test_native_memory_contradicts_by_who_wrote_the_lines() -> None:
    ours = read(files("Project", "AutoMem"), said("1"))
    assert ours["native memory"][0] == "present"
    assert "was to have none" in ours["native memory"][1]
    before = read(files("AutoMem"), shape("a", ""), asked("a"), said("1"), BOUNDARY, ours=False)
    assert before["native memory"][0] == "present"
    assert "continued without amux" in before["native memory"][1]
    assert before["compaction"] == ("without amux", "", 0)
    assert "protocol" not in before
    assert read(BOUNDARY, BOUNDARY, said("1"))["compaction"] == ("2", "", 1)


@pytest.mark.parametrize(
    ("lines", "observed"),
    [
        ([hooked(PROTOCOL)], "once"),
        ([hooked("of somebody else"), hooked(PROTOCOL)], "once"),
        ([shape("a", PROTOCOL, TOOL), asked("a", "agent:builtin:x")], "once"),
        ([shape("a", "", TOOL), asked("a", "agent:x"), hooked(PROTOCOL)], "once"),
        ([shape("a", PROTOCOL, TOOL), asked("a", "agent:x"), hooked(PROTOCOL)], "2 times"),
        ([shape("a", "", TOOL), asked("a", "agent:x")], "absent"),
    ],
)
def test_a_sub_agent_has_the_text_by_the_option_or_by_the_hook(
    lines: list[dict[str, Any]], observed: str
) -> None:
    seen = read(*lines, main=False)["protocol in sub-agents"]
    assert (seen[0], bool(seen[1])) == (observed, observed != "once")


def test_a_version_that_stores_nothing_says_so_and_nothing_is_said_before_a_turn() -> None:
    nothing = ("not stored", "", 1)
    assert read(said("1")) == {"native memory": nothing, "protocol": nothing}
    assert read(said("1", "tool_use")) == {}
    assert read(said("1"), main=False) == {}


def test_the_files_are_named_by_the_id_and_no_pattern_is_one() -> None:
    named = CLAUDE.transcripts(request(), "abc")
    assert named is not None
    assert named.main == "/home/ann/.claude/projects/*/abc.jsonl"
    assert named.beside == ("/home/ann/.claude/projects/*/abc/subagents/*.jsonl",)
    assert CLAUDE.transcripts(request(), "") is None
    assert CLAUDE.transcripts(request(), "a*c") is None
