"""Memory tools that Claude was given and does not offer: the report says so, in each mode."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from fixtures.pinned import CLAUDE_VERSIONS
from fixtures.stages import managed_by, staged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from amux.launcher.host import Host
    from amux.launcher.probe.model import Turn
    from fixtures.stages import Stage

pytestmark = [pytest.mark.agents, pytest.mark.parametrize("version", CLAUDE_VERSIONS)]

READER: Final = "---\nname: reader\ndescription: reads\ntools: Read\n---\nYou read.\n"
MINDFUL: Final = "---\nname: mindful\ndescription: m\ntools: Read, mcp__amux\n---\nYou read.\n"
NONE: Final[dict[str, tuple[tuple[str, ...], dict[str, Any]]]] = {
    "rule": ((), {"permissions": {"deny": ["mcp__*"]}}),
    "settings agent": ((), {"agent": "reader"}),
    "agent": (("--agent", "reader"), {}),
    "argument": (("--disallowedTools=mcp__amux",), {}),
}


@pytest.fixture
def stage(tmp_path: Path, shared_host: Host, version: str) -> Iterator[Stage]:
    with staged(tmp_path, shared_host, "claude", version) as made:
        agents = made.cwd / ".claude" / "agents"
        agents.mkdir(parents=True)
        (agents / "reader.md").write_text(READER)
        (agents / "mindful.md").write_text(MINDFUL)
        yield made


def settings(stage: Stage, found: dict[str, Any]) -> None:
    folder = stage.home / ".claude"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "settings.json").write_text(json.dumps(found))


def print_report(stage: Stage, *arguments: str) -> tuple[dict[str, Any], Turn]:
    """Launch with `-p` and return the report and the model request."""
    options = ("--executable", str(stage.executable), "--json", "--", *stage.options)
    done, turn = stage.amux("launch", "claude", *options, "-p", "hello", *arguments)
    events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"event"')]
    reports = [one["report"] for one in events if one["event"] == "launched"]
    assert reports, done.stderr
    assert turn is not None
    return reports[0], turn


def memory_tools(turn: Turn) -> int:
    return len([one for one in turn.tools if one.name.startswith("mcp__amux__")])


def told(report: dict[str, Any]) -> tuple[str, bool]:
    """Return what is said of the memory tools, and whether a warning says that there are none."""
    (seen,) = [one["observed"] for one in report["controls"] if one["control"] == "memory tools"]
    return seen, any("none of the memory tools" in text for text in report["warnings"])


@pytest.mark.parametrize("case", NONE)
def test_where_none_is_offered_the_report_says_none(stage: Stage, version: str, case: str) -> None:
    del version
    arguments, found = NONE[case]
    settings(stage, found)
    report, turn = stage.turn(*arguments)
    assert memory_tools(turn) == 0
    assert told(report.as_json()) == ("none offered", True)
    seen = stage.record(report.native_id).seen
    assert [(one.control, one.observed) for one in seen if one.source == "init tools"] == [
        ("memory tools", "none offered")
    ]
    printed, turn = print_report(stage, *arguments)
    assert memory_tools(turn) == 0
    assert told(printed) == ("none offered", True)


def test_where_some_are_offered_the_report_says_how_many(stage: Stage, version: str) -> None:
    del version
    settings(stage, {"permissions": {"deny": ["mcp__amux__amux_memory_upsert", "mcp__other"]}})
    report, turn = stage.turn()
    assert memory_tools(turn) == 4
    assert told(report.as_json()) == ("connected, 4 offered", False)
    settings(stage, {})
    printed, turn = print_report(stage, "--agent", "mindful")
    assert memory_tools(turn) == 5
    assert told(printed) == ("allowed, 5 offered", False)


@pytest.mark.root
def test_managed_rules_that_would_refuse_each_call_are_told(
    stage: Stage, tmp_path: Path, version: str
) -> None:
    del version
    policy = {"allowManagedPermissionRulesOnly": True}
    managed = replace(stage, executable=managed_by(tmp_path, stage.executable, policy))
    printed, turn = print_report(managed)
    assert memory_tools(turn) == 5
    assert any("asks before each call" in text for text in printed["warnings"])
