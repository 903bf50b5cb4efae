"""Claude Code over a stream: what really reaches the model, in each pinned version."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from amux.launcher.errors import MemoryNotIsolated
from amux.launcher.launch import launch
from amux.launcher.memory.protocol import render
from amux.launcher.probe.model import Call, Say
from amux.launcher.probe.talk import take_turn
from amux.launcher.request import LaunchRequest
from amux.providers.errors import BadArguments, ToolsNotLoaded
from fixtures.pinned import CLAUDE_VERSIONS
from fixtures.stages import managed_by, occurrences, staged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from amux.launcher.host import Host
    from amux.launcher.probe.model import Answer, Turn
    from fixtures.stages import Stage

pytestmark = [pytest.mark.agents, pytest.mark.parametrize("version", CLAUDE_VERSIONS)]

PROTOCOL = render("mcp").text
OWN = "Answer in verse.\nAnd briefly."
MERGED = f"{OWN}\n\n{PROTOCOL}"
SECTION = "persistent file-based memory"
"""How Claude's own memory begins in the system prompt."""
INDEX = "ANN-LIKES-TEA"
"""What Claude's own memory holds."""
ON = {"autoMemoryEnabled": True, "env": {"CLAUDE_CODE_DISABLE_AUTO_MEMORY": "0"}}
TOOLS = [
    f"mcp__amux__amux_{name}"
    for name in ("memory_forget", "memory_get", "memory_search", "memory_upsert", "result_continue")
]


@pytest.fixture
def stage(tmp_path: Path, shared_host: Host, version: str) -> Iterator[Stage]:
    with staged(tmp_path, shared_host, "claude", version) as made:
        yield made


def assert_bound(turn: Turn, text: str = MERGED) -> None:
    """Check what the model was told: the text once, no native memory, the memory tools."""
    assert occurrences(turn, text) == 1
    assert occurrences(turn, PROTOCOL) == 1
    assert text in turn.system
    assert occurrences(turn, SECTION) == 0
    assert [one.name for one in turn.tools if one.name.startswith("mcp__amux")] == TOOLS


def native_memory(stage: Stage) -> Path:
    """Put something into Claude's own memory of the stage's folder."""
    (project,) = (stage.home / ".claude" / "projects").iterdir()
    index = project / "memory" / "MEMORY.md"
    index.parent.mkdir(exist_ok=True)
    index.write_text(f"{INDEX}\n")
    return index


def test_the_prompt_is_the_bare_agents_with_the_merged_text_in_place_of_the_callers(
    stage: Stage, version: str
) -> None:
    report, turn = stage.turn("--append-system-prompt", OWN)
    assert_bound(turn)
    bare = stage.bare(
        "-p", "hello", f"--append-system-prompt={OWN}", CLAUDE_CODE_DISABLE_AUTO_MEMORY="1"
    )
    system, other = (one.body["system"][1:] for one in (turn, bare))
    assert (
        json.loads(json.dumps(system).replace(json.dumps(MERGED)[1:-1], json.dumps(OWN)[1:-1]))
        == other
    )
    assert report.agent_version == version
    assert [(one.control, one.observed) for one in report.controls][:2] == [
        ("auto memory", "off"),
        ("memory tools", "connected"),
    ]
    assert report.warnings == ()


def test_resume_and_fork_send_the_same_text_also_after_a_native_turn_in_between(
    stage: Stage, version: str
) -> None:
    report, first = stage.turn("--append-system-prompt", OWN)
    assert_bound(first)
    own_files = native_memory(stage)
    before = own_files.read_bytes()
    resumed, second = stage.turn("-r", report.native_id or "")
    assert_bound(second)
    assert (resumed.session, resumed.binding) == (report.session, "global")
    assert second.body["system"] == first.body["system"]
    assert second.body["tools"] == first.body["tools"]
    assert resumed.instructions_digest == report.instructions_digest
    assert resumed.warnings == ()
    native = stage.bare("-p", "and now?", f"--resume={report.native_id}")
    assert (occurrences(native, SECTION), occurrences(native, PROTOCOL)) == (1, 0)
    assert occurrences(native, INDEX) == 1
    again, third = stage.turn("--append-system-prompt", "something new", session=report.session)
    assert_bound(third)
    assert third.body["system"] == first.body["system"]
    assert len(third.user) > len(second.user)
    assert any("new append text is not sent" in text for text in again.warnings)
    # What a transcript keeps of the native memory comes back; that is reported, never hidden.
    told = [text for text in again.warnings if "read Claude's own memory" in text]
    assert bool(told) == (occurrences(third, INDEX) > 0)
    assert bool(told) == (version == "2.1.332")
    forked, fourth = stage.turn(session=report.session, fork=True)
    assert_bound(fourth)
    assert fourth.body["system"] == first.body["system"]
    assert forked.native_id not in {None, report.native_id}
    assert forked.session != report.session
    assert own_files.read_bytes() == before


@pytest.mark.parametrize(
    "place",
    [
        "home/.claude/settings.json",
        "project/.claude/settings.json",
        "project/.claude/settings.local.json",
        "--settings",
    ],
)
def test_no_settings_file_turns_native_memory_on_and_none_is_edited(
    stage: Stage, place: str, version: str
) -> None:
    del version
    arguments: tuple[str, ...] = ()
    if place == "--settings":
        arguments = ("--settings", json.dumps(ON))
    else:
        path = stage.home.parent / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(ON))
        before = stage.print_of(place)
    report, turn = stage.turn(*arguments)
    assert_bound(turn, PROTOCOL)
    assert report.controls[0].observed == "off"
    if arguments:
        assert any("switch Claude's own memory on" in text for text in report.warnings)
    else:
        assert stage.print_of(place) == before


@pytest.mark.root
def test_a_managed_file_that_turns_native_memory_on_fails_the_launch(
    stage: Stage, tmp_path: Path, version: str
) -> None:
    del version
    managed = replace(stage, executable=managed_by(tmp_path, stage.executable, ON))
    with pytest.raises(MemoryNotIsolated, match=r'policySettings sets it last.*answered: "0"'):
        managed.turn()
    done, turn = managed.amux(
        "launch", "claude", "--executable", str(managed.executable), "--", "-p", "hello"
    )
    assert (done.returncode, turn) == (125, None)
    assert "policySettings sets it last" in done.stderr
    assert stage.model.turns == []


def test_the_init_event_of_a_turn_is_added_to_the_record(stage: Stage, version: str) -> None:
    report, _ = stage.turn()
    evidence = stage.record(report.native_id).evidence
    seen = {(one.control, one.observed) for one in evidence if one.source.startswith("init")}
    assert seen == {
        ("auto memory", "off"),
        ("memory tools", "connected"),
        ("memory tools offered", str(len(TOOLS))),
        ("version", version),
    }


def test_texts_over_the_argument_limit_arrive_whole(stage: Stage, version: str) -> None:
    del version
    long = "".join(f"{number}: é\n" for number in range(20_000)) + "end"
    path = stage.cwd / "long.md"
    path.write_text(long)
    report, turn = stage.turn("--append-system-prompt-file=long.md")
    assert len(long.encode()) > 131_072
    assert_bound(turn, f"{long}\n\n{PROTOCOL}")
    assert report.warnings == ()


def searching(turn: Turn) -> Answer:
    """Search once, then say what came of it."""
    tool = turn.tool("amux_memory_search")
    if tool is not None and not turn.results:
        return Call(tool, {"query": "tea"})
    return Say(turn.results[-1].text if turn.results else "no tool")


def test_memory_can_be_searched_in_plan_mode(
    tmp_path: Path, shared_host: Host, version: str
) -> None:
    with staged(tmp_path, shared_host, "claude", version, searching) as stage:
        _, turn = stage.turn("--permission-mode", "plan")
        (result,) = turn.results
        assert json.loads(result.text)["scanned_files"] == 0


def delegating(turn: Turn) -> Answer:
    """Let the main agent start one sub-agent."""
    tool = turn.tool("Agent", "Task")
    if tool is not None and not turn.results and "DELEGATE" in json.dumps(turn.body["messages"]):
        arguments = {"description": "d", "prompt": "Look it up.", "subagent_type": "keeper"}
        return Call(tool, arguments)
    return Say("done")


def test_sub_agents_have_the_protocol_and_the_tools_and_no_memory_of_their_own(
    tmp_path: Path, shared_host: Host, version: str
) -> None:
    with staged(tmp_path, shared_host, "claude", version, delegating) as stage:
        agents = stage.cwd / ".claude" / "agents"
        agents.mkdir(parents=True)
        agents.joinpath("keeper.md").write_text(
            "---\nname: keeper\ndescription: keeps\nmemory: user\n---\nYou are the KEEPER.\n"
        )
        report, _ = stage.turn("--append-system-prompt", OWN, say="DELEGATE this.")
        (sub,) = [turn for turn in stage.model.turns if "You are the KEEPER" in turn.system]
        stage.bare("-p", "DELEGATE this.")
        *_, native = [turn for turn in stage.model.turns if "You are the KEEPER" in turn.system]
    assert occurrences(sub, PROTOCOL) == 1
    assert occurrences(sub, OWN) == 0
    assert [one.name for one in sub.tools if one.name.startswith("mcp__amux")] == TOOLS
    assert occurrences(native, "Persistent Agent Memory") == 1
    assert occurrences(sub, "Persistent Agent Memory") == 0
    (way,) = [one for one in report.controls if one.control == "protocol in sub-agents"]
    assert way.observed == ("appended" if version == "2.1.332" else "by a SubagentStart hook")


def test_a_native_conversation_without_a_record_is_resumed_untouched_and_reported(
    stage: Stage, version: str
) -> None:
    del version
    session_id = str(uuid.uuid4())
    stage.bare("-p", "one", f"--session-id={session_id}")
    native_memory(stage)
    report, turn = stage.turn("--resume", session_id)
    assert report.binding is None
    assert session_id in (report.unbound or "")
    assert any("no record of amux" in text for text in report.warnings)
    assert (occurrences(turn, SECTION), occurrences(turn, PROTOCOL)) == (1, 0)
    assert not [one for one in turn.tools if "amux" in one.name]
    assert len(turn.user) > 1
    continued, turn = stage.turn("--continue")
    assert continued.binding is None
    # The first of these launches made a record of it, which says that it has no memory.
    assert continued.native_id == session_id
    assert continued.unbound == "the session began without memory and stays so"
    assert len(turn.user) > 2
    assert (occurrences(turn, SECTION), occurrences(turn, PROTOCOL)) == (1, 0)


@pytest.mark.root
def test_memory_tools_that_a_managed_policy_drops_fail_the_launch(
    stage: Stage, tmp_path: Path, version: str
) -> None:
    del version
    policy = {"allowedMcpServers": [{"serverName": "other"}]}
    managed = replace(stage, executable=managed_by(tmp_path, stage.executable, policy))
    with pytest.raises(ToolsNotLoaded, match="amux is absent"):
        managed.turn()
    done, turn = managed.amux(
        "launch", "claude", "--executable", str(managed.executable), "--", "-p", "hello"
    )
    assert (done.returncode, turn) == (125, None)
    assert "leaves the memory tools out" in done.stderr


def test_a_supervisors_later_requests_cannot_undo_the_controls(stage: Stage, version: str) -> None:
    del version
    request = LaunchRequest(
        provider="claude",
        cwd=stage.cwd,
        environment=stage.environment,
        executable=stage.executable,
    )
    settings = {"env": {"CLAUDE_CODE_DISABLE_AUTO_MEMORY": "0"}}
    undoing = {"subtype": "apply_flag_settings", "settings": settings}
    with launch(request, stage.host) as run:
        with pytest.raises(BadArguments):
            run.channel.send({"type": "control_request", "request_id": "1", "request": undoing})
        started = {"subtype": "initialize", "appendSystemPrompt": "# Memory (amux)"}
        run.channel.send({"type": "control_request", "request_id": "2", "request": started})
        take_turn("claude", run.channel, "hello", native_id=None)
    assert_bound(stage.model.turns[-1], PROTOCOL)
