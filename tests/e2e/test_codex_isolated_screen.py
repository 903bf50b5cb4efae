"""Codex's screen as another user: its server and socket are the target's, its threads bound."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from amux.launcher.probe.model import ScriptedModel
from amux.launcher.probe.stage import stage_codex
from amux.launcher.session.store import SessionStore
from fixtures import accounts
from fixtures.codex import PROMPT, CodexHome, say_ok
from fixtures.isolated import isolated_host, reachable_agent
from fixtures.pinned import CODEX_VERSIONS
from fixtures.terminal import terminal
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from fixtures.accounts import Account

pytestmark = [pytest.mark.root, pytest.mark.agents]


def give(target: Account) -> None:
    for folder, names, files in os.walk(target.home):
        for path in (folder, *(f"{folder}/{name}" for name in (*names, *files))):
            os.chown(path, target.uid, target.gid)


@pytest.mark.parametrize("version", CODEX_VERSIONS)
def test_the_screen_of_another_user_is_bound_to_its_principal(version: str) -> None:
    with (
        isolated_host() as host,
        accounts.account() as target,
        reachable_agent("codex", version) as agent,
        ScriptedModel(say_ok) as model,
    ):
        environment = stage_codex(target.home, model.url, path=agent.path)
        home = CodexHome(target.home, version, environment)
        home.configure(f'[projects."{target.home}"]\ntrust_level = "trusted"\n')
        give(target)
        words = ("launch", "codex", "--user", target.name, "--principal", "ann")
        argv = (sys.executable, "-m", "amux.launcher.command", *words)
        options = ("--executable", str(agent.executable), "--env", "SCRIPTED_MODEL_KEY")
        own = {**host.environ, **environment, "HOME": host.environ["HOME"]}
        with terminal((*argv, *options), own, host.home) as screen:
            screen.until(lambda: len(home.modes()) == 1, "a thread")
            screen.shows(PROMPT)
            screen.enter("hello", lambda: bool(model.turns))
            turn = model.wait_for(lambda turn: turn.user[-1:] == ("hello",), deadline=SECONDS)
            screen.shows("• ok")
            sockets = list(host.runs.glob("*/work/codex.sock"))
            owners = {(path.stat().st_uid, path.stat().st_mode & 0o777) for path in sockets}
            assert screen.leave("/quit") == 0
        assert owners == {(target.uid, 0o600)}
        assert "MEMORY.md" in turn.system
        assert turn.tool("memory_search") is not None
        assert list(home.modes().values()) == ["disabled"]
        record = SessionStore(host.home).list().records[0]
        assert record.binding == "principal:ann"
        seen = {one.control: one.observed for one in record.evidence}
        assert seen["codexHome"] == str(home.codex)
        assert seen["memoryMode"] == "disabled"
        assert list(host.runs.iterdir()) == []
