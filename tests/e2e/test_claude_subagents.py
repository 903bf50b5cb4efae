"""Who else speaks in a launch's name: sub-agents of print mode and the screen, teams, `/bg`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from amux.launcher.memory.protocol import render
from amux.launcher.probe.model import Call, Say
from amux.launcher.session.store import SessionStore
from fixtures.claude_home import ready, settled
from fixtures.pinned import CLAUDE_VERSIONS
from fixtures.stages import AMUX, managed_by, occurrences, staged
from fixtures.terminal import terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from amux.launcher.host import Host
    from amux.launcher.probe.model import Answer, Turn
    from fixtures.stages import Stage

pytestmark = [pytest.mark.agents, pytest.mark.parametrize("version", CLAUDE_VERSIONS)]

PROTOCOL: Final = render("mcp").text
TASK: Final = "SUBTASK do it"
CONTROL: Final = "protocol in sub-agents"


def delegating(turn: Turn) -> Answer:
    """Let the main agent start a sub-agent, or, where it is asked for, a teammate."""
    said = json.dumps(turn.user)
    agent = turn.tool("Agent", "Task")
    if agent is None or turn.results or TASK in said or "please" not in said:
        return Say("DONE")
    call: dict[str, Any] = {
        "description": "work",
        "prompt": TASK,
        "subagent_type": "general-purpose",
    }
    return Call(agent, call | ({"name": "mate"} if "a team" in said else {}))


@pytest.fixture
def stage(tmp_path: Path, shared_host: Host, version: str) -> Iterator[Stage]:
    with staged(tmp_path, shared_host, "claude", version, delegating) as made:
        settled(made)
        yield made


def children(stage: Stage) -> list[Turn]:
    """Return the requests of sub-agents and teammates."""
    return [
        one
        for one in stage.model.turns
        if TASK in json.dumps(one.user) and "please" not in json.dumps(one.user) and one.tools
    ]


def assert_held(turn: Turn) -> None:
    assert occurrences(turn, PROTOCOL) == 1
    assert turn.tool("amux_memory_search") is not None
    assert occurrences(turn, "persistent file-based memory") == 0


def reached(stage: Stage) -> tuple[str, tuple[str, ...]]:
    """Return what the record of this stage's only session says of sub-agents, and its warnings."""
    (record,) = [
        one for one in SessionStore(stage.host.home).list().records if one.cwd == str(stage.cwd)
    ]
    (way,) = [one.observed for one in record.evidence if one.control == CONTROL]
    return way, record.warnings


def on_screen(stage: Stage, typed: str, *arguments: str, **environment: str) -> None:
    """Type one line on the screen and leave when a sub-agent has asked the model."""
    argv = (str(AMUX), "launch", "claude", "--executable", str(stage.executable), "--")
    words = (*stage.options, "--permission-mode", "acceptEdits", *arguments)
    with terminal((*argv, *words), {**stage.amux_environment, **environment}, stage.cwd) as screen:
        ready(screen)
        screen.enter(typed, lambda: bool(children(stage)))
        screen.press("\x1b")
        screen.leave("/exit")


def test_a_sub_agent_of_the_screen_has_the_protocol_once_and_the_report_says_how(
    stage: Stage, version: str
) -> None:
    del version
    on_screen(stage, "please delegate")
    for turn in children(stage):
        assert_held(turn)
    assert reached(stage) == ("by a SubagentStart hook", ())


def test_a_teammate_of_a_team_in_panes_runs_in_this_claude_instead(
    stage: Stage, version: str
) -> None:
    del version
    teams = {"CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS": "1"}
    on_screen(stage, "please make a team", "--teammate-mode=tmux", **teams)
    for turn in children(stage):
        assert_held(turn)
    _, warnings = reached(stage)
    assert any("teammates run in this Claude" in text for text in warnings)


@pytest.mark.root
def test_a_hook_that_a_managed_policy_stops_is_not_reported(
    stage: Stage, tmp_path: Path, version: str
) -> None:
    policy = {"allowManagedHooksOnly": True}
    managed = replace(stage, executable=managed_by(tmp_path, stage.executable, policy))
    options = ("--executable", str(managed.executable), "--", *stage.options)
    managed.amux("launch", "claude", *options, "-p", "please delegate")
    (turn,) = children(stage)
    way, warnings = reached(stage)
    if version == "2.1.332":
        assert_held(turn)
        assert (way, warnings) == ("appended", ())
    else:
        assert occurrences(turn, PROTOCOL) == 0
        assert way == "absent"
        assert any("policySettings switches hooks off" in text for text in warnings)


def test_a_conversation_is_not_handed_to_claudes_own_daemon(stage: Stage, version: str) -> None:
    del version
    argv = (str(AMUX), "launch", "claude", "--executable", str(stage.executable), "--")
    with terminal((*argv, *stage.options), stage.amux_environment, stage.cwd) as screen:
        ready(screen)
        screen.enter(
            "hello", lambda: "hello" in json.dumps([one.user for one in stage.model.turns])
        )
        screen.shows("DONE")
        before = len(screen.screen)
        screen.enter("/bg go on alone", lambda: "Unknown" in screen.screen[before:])
        screen.leave("/exit")
    assert not list((stage.home / ".claude").rglob("roster.json"))
    assert not [one for one in stage.model.turns if "go on alone" in json.dumps(one.user)]
