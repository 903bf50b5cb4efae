"""Claude's print mode as another user: the pre-flight is that user's as well."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from amux.launcher.memory.protocol import render
from amux.launcher.probe.model import Say, ScriptedModel
from amux.launcher.probe.stage import STAGES
from fixtures import accounts
from fixtures.isolated import isolated_host, reachable_agent
from fixtures.pinned import CLAUDE_VERSIONS
from fixtures.stages import AMUX, occurrences
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from amux.launcher.probe.model import Answer, Turn

pytestmark = [
    pytest.mark.root,
    pytest.mark.agents,
    pytest.mark.parametrize("version", CLAUDE_VERSIONS),
]

PASSED = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC")


def answering(turn: Turn) -> Answer:
    del turn
    return Say("as somebody else")


def test_print_mode_as_another_user_is_confirmed_and_remembered_for_that_user(
    version: str,
) -> None:
    with (
        isolated_host() as host,
        accounts.account() as target,
        reachable_agent("claude", version) as agent,
        ScriptedModel(answering) as model,
    ):
        staged = STAGES["claude"](target.home, model.url, path=agent.path)
        settings = target.home / ".claude" / "settings.json"
        settings.parent.mkdir(parents=True)
        settings.write_text('{"env": {"CLAUDE_CODE_DISABLE_AUTO_MEMORY": "0"}}')
        for path in (target.home, *target.home.rglob("*")):
            os.chown(path, target.uid, target.gid)
        command = [str(AMUX), "launch", "claude", "--principal", "ann", "--user", target.name]
        for name in PASSED:
            command += ["--env", name]
        command += ["--executable", str(agent.executable), "--", "-p", "hello"]
        environment = {**staged, "AMUX_HOME": str(host.home), "AMUX_RUNS": str(host.runs)}
        remembered = set()
        for _ in range(2):
            done = subprocess.run(
                command,
                env=environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            assert (done.returncode, done.stdout) == (0, "as somebody else\n"), done.stderr
            remembered.add(host.preflights.read_text())
        assert len(remembered) == 1
    for turn in model.turns:
        assert occurrences(turn, render("mcp").text) == 1
        assert occurrences(turn, "persistent file-based memory") == 0
        assert turn.tool("amux_memory_search") is not None
