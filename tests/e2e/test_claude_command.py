"""`amux launch claude`: print mode and the screen, each after a pre-flight."""

from __future__ import annotations

import itertools
import json
import time
from typing import TYPE_CHECKING

import pytest

from amux.launcher.memory.protocol import render
from amux.launcher.probe.model import Say
from amux.launcher.session.store import SessionStore
from amux.materializer.agentside.tools import LATEST
from fixtures.claude_home import settled
from fixtures.pinned import CLAUDE_VERSIONS
from fixtures.stages import AMUX, managed_by, occurrences, staged
from fixtures.terminal import terminal
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from amux.launcher.host import Host
    from amux.launcher.probe.model import Answer, Turn
    from amux.launcher.session.store import SessionRecord
    from fixtures.stages import Stage
    from fixtures.terminal import Terminal

pytestmark = [pytest.mark.agents, pytest.mark.parametrize("version", CLAUDE_VERSIONS)]

PROTOCOL = render("mcp").text
SECTION = "persistent file-based memory"


def answering(turn: Turn) -> Answer:
    """Answer each prompt with a word of its own."""
    return Say(f"ANSWER-{len(turn.user)}")


@pytest.fixture
def stage(tmp_path: Path, shared_host: Host, version: str) -> Iterator[Stage]:
    with staged(tmp_path, shared_host, "claude", version, answering) as made:
        yield made


def assert_bound(turn: Turn | None, text: str) -> None:
    assert turn is not None
    assert occurrences(turn, text) == occurrences(turn, PROTOCOL) == 1
    assert text in turn.system
    assert occurrences(turn, SECTION) == 0


def launched(stderr: str) -> dict[str, object]:
    """Return the report in the events of `--json`."""
    events = [json.loads(line) for line in stderr.splitlines() if line.startswith('{"event"')]
    (report,) = [one["report"] for one in events if one["event"] == "launched"]
    assert isinstance(report, dict)
    return report


def test_print_mode_is_asked_once_and_again_only_after_a_setting_changed(
    stage: Stage, version: str
) -> None:
    del version
    options = ("--executable", str(stage.executable), "--json", "--", *stage.options)
    own = ("--append-system-prompt", "Be brief.", "-p", "hello")
    done, turn = stage.amux("launch", "claude", *options, *own)
    assert done.stdout == "ANSWER-1\n"
    assert_bound(turn, f"Be brief.\n\n{PROTOCOL}")
    report = launched(done.stderr)
    assert report["controls"][0]["observed"] == "off"  # type: ignore[index]
    remembered = stage.host.preflights
    first = json.loads(remembered.read_text())
    done, turn = stage.amux("launch", "claude", *options, *own)
    assert_bound(turn, f"Be brief.\n\n{PROTOCOL}")
    assert json.loads(remembered.read_text()) == first
    assert report["controls"][0]["asked"] == ""  # type: ignore[index]
    assert launched(done.stderr)["controls"][0]["asked"].endswith("Z")  # type: ignore[index]
    settings = stage.home / ".claude" / "settings.json"
    settings.write_text('{"env": {"CLAUDE_CODE_DISABLE_AUTO_MEMORY": "0"}}')
    before = stage.print_of("home/.claude/settings.json")
    done, turn = stage.amux("resume", str(report["session"]), *options, "-p", "again")
    assert done.stdout == "ANSWER-2\n"
    assert_bound(turn, f"Be brief.\n\n{PROTOCOL}")
    assert len(json.loads(remembered.read_text())) == len(first) + 1
    assert stage.print_of("home/.claude/settings.json") == before


def test_on_its_screen_a_typed_prompt_has_the_protocol_and_the_tools_also_on_a_resume(
    stage: Stage, version: str
) -> None:
    del version
    settled(stage)
    options = ("--executable", str(stage.executable), "--", *stage.options)
    session = ""
    for command in (("launch", "claude"), ("resume",)):
        argv = (str(AMUX), *command, *((session,) if session else ()), *options)
        asked = f"prompt of {command[0]}"
        with terminal(argv, stage.amux_environment, stage.cwd) as screen:
            screen.until(
                lambda: any(hint in screen.screen for hint in ("forshortcuts", "shift+tab")),
                "the input line",
            )
            turn = _first_turn_with_tools(stage, screen, asked)
            screen.shows("ANSWER-")
            assert screen.leave("/exit") == 0
        assert_bound(turn, PROTOCOL)
        assert turn.tool("amux_memory_search") is not None
        (record,) = [
            one for one in _records(stage) if one.cwd == str(stage.cwd) and one.state == "ended"
        ]
        session = record.id
        assert record.mode == "terminal"


def _first_turn_with_tools(stage: Stage, screen: Terminal, asked: str) -> Turn:
    """Type prompts until one has the tools: on its screen Claude does not wait for a server."""
    end = time.monotonic() + SECONDS
    for number in itertools.count():
        text = f"{asked}, number {number}"
        screen.enter(text, lambda text=text: bool(_asked(stage, text)))  # type: ignore[misc]
        turn = _asked(stage, text)[0]
        if turn.tool("amux_memory_search") is not None or time.monotonic() > end:
            break
    return turn


def _asked(stage: Stage, text: str) -> list[Turn]:
    return [one for one in stage.model.turns if text in json.dumps(one.user) and one.tools]


def _records(stage: Stage) -> tuple[SessionRecord, ...]:
    return SessionStore(stage.host.home).list().records


@pytest.mark.root
@pytest.mark.parametrize("off", ["true", "yes"])
def test_a_managed_word_that_claude_takes_for_off_is_off(
    stage: Stage, tmp_path: Path, version: str, off: str
) -> None:
    del version
    policy = {"env": {"CLAUDE_CODE_DISABLE_AUTO_MEMORY": off}}
    program = managed_by(tmp_path, stage.executable, policy)
    done, turn = stage.amux(
        "launch", "claude", "--executable", str(program), "--", *stage.options, "-p", "hello"
    )
    assert done.returncode == 0, done.stderr
    assert_bound(turn, PROTOCOL)


@pytest.mark.root
def test_a_policy_that_names_the_command_of_the_launch_lets_it_pass_and_no_other(
    stage: Stage, tmp_path: Path, version: str
) -> None:
    del version
    command = [str(stage.host.home / "bin" / "amux"), "mcp", "--tools", LATEST]
    for number, (allowed, status) in enumerate(((command, 0), (command[:2], 125))):
        (folder := tmp_path / str(number)).mkdir()
        policy = {"allowedMcpServers": [{"serverCommand": allowed}]}
        program = managed_by(folder, stage.executable, policy)
        done, turn = stage.amux(
            "launch", "claude", "--executable", str(program), "--", *stage.options, "-p", "hello"
        )
        assert done.returncode == status, done.stderr
        if turn is not None:
            assert turn.tool("amux_memory_search") is not None
