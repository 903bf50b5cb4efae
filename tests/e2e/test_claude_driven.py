"""A program drives `amux launch claude -- -p --input-format stream-json`, as an editor would."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest

from amux.launcher.errors import BadRequest
from amux.launcher.launch import launch
from amux.launcher.memory.protocol import render
from amux.launcher.request import LaunchRequest
from amux.launcher.session.store import SessionStore
from amux.providers.base import Mode
from fixtures.pinned import CLAUDE_VERSIONS
from fixtures.stages import AMUX, occurrences, staged
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from amux.launcher.host import Host
    from fixtures.stages import Stage

pytestmark = [pytest.mark.agents, pytest.mark.parametrize("version", CLAUDE_VERSIONS)]

PROTOCOL: Final = render("mcp").text
DRIVEN: Final = ("-p", "--input-format", "stream-json", "--output-format=stream-json", "--verbose")
SECTION: Final = "persistent file-based memory"
OFF: Final = {"env": {"CLAUDE_CODE_DISABLE_AUTO_MEMORY": "0"}}
REFUSED: Final[dict[str, dict[str, Any]]] = {
    "text": {"subtype": "initialize", "appendSystemPrompt": "EDITOR-TEXT"},
    "memory": {"subtype": "apply_flag_settings", "settings": OFF},
    "agent": {"subtype": "apply_flag_settings", "settings": {"agent": "reader"}},
}
READER: Final = "---\nname: reader\ndescription: reads\ntools: Read\n---\nYou read.\n"


@pytest.fixture
def stage(tmp_path: Path, shared_host: Host, version: str) -> Iterator[Stage]:
    with staged(tmp_path, shared_host, "claude", version) as made:
        yield made


def drive(stage: Stage, *messages: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """Send messages through `amux launch`, close, and return stderr and what came back."""
    done = subprocess.run(
        [AMUX, "launch", "claude", "--executable", stage.executable, "--", *stage.options, *DRIVEN],
        input="".join(json.dumps(one) + "\n" for one in messages),
        env=stage.amux_environment,
        cwd=stage.cwd,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr, [json.loads(line) for line in done.stdout.splitlines()]


def control(name: str, request: dict[str, Any]) -> dict[str, Any]:
    return {"type": "control_request", "request_id": name, "request": request}


def test_what_would_undo_a_control_is_answered_and_never_reaches_claude(
    stage: Stage, version: str
) -> None:
    del version
    agents = stage.cwd / ".claude" / "agents"
    agents.mkdir(parents=True)
    (agents / "reader.md").write_text(READER)
    undoing = [control(name, request) for name, request in REFUSED.items()]
    begin = control("begin", {"subtype": "initialize"})
    prompt = {"type": "user", "message": {"role": "user", "content": "hello"}}
    _, said = drive(stage, begin, *undoing, prompt)
    answers = {
        one["response"]["request_id"]: one["response"]
        for one in said
        if one.get("type") == "control_response"
    }
    assert answers["begin"]["subtype"] == "success"
    for name in REFUSED:
        assert answers[name]["subtype"] == "error"
        assert answers[name]["error"].startswith("amux: ")
    assert said[-1]["result"] == "ok"
    (turn,) = [one for one in stage.model.turns if one.tools]
    assert (occurrences(turn, PROTOCOL), occurrences(turn, SECTION)) == (1, 0)
    assert occurrences(turn, "EDITOR-TEXT") == 0
    assert turn.tool("amux_memory_search") is not None


def test_a_driven_conversations_init_is_in_the_record(stage: Stage, version: str) -> None:
    del version
    prompt = {"type": "user", "message": {"role": "user", "content": "hello"}}
    drive(stage, prompt)
    (record,) = [
        one for one in SessionStore(stage.host.home).list().records if one.cwd == str(stage.cwd)
    ]
    offered = [one.observed for one in record.evidence if one.control == "memory tools offered"]
    assert (record.mode, offered) == ("passthrough", ["5"])


def test_without_somebody_who_carries_the_messages_it_is_refused(
    stage: Stage, version: str
) -> None:
    del version
    request = LaunchRequest(
        provider="claude",
        arguments=(*stage.options, *DRIVEN),
        mode=Mode.PASSTHROUGH,
        cwd=stage.cwd,
        environment=stage.environment,
        executable=stage.executable,
    )
    with pytest.raises(BadRequest, match=r"use Mode\.STREAM"):
        launch(request, stage.host)
    assert stage.model.turns == []
