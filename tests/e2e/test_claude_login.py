"""Asking Claude leaves its user logged in, whatever it was at when it was asked."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from amux.launcher.errors import MemoryNotIsolated
from fixtures.logins import login_server
from fixtures.pinned import CLAUDE_VERSIONS
from fixtures.stages import AMUX, staged
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from amux.launcher.host import Host

pytestmark = [pytest.mark.agents, pytest.mark.parametrize("version", CLAUDE_VERSIONS)]

KEY = ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")


def stored(credentials: Path) -> str:
    return str(json.loads(credentials.read_text())["claudeAiOauth"].get("refreshToken"))


def test_a_login_that_claude_refreshes_while_it_is_asked_is_kept(
    tmp_path: Path, host: Host, version: str
) -> None:
    with (
        login_server(tmp_path / "login") as server,
        staged(tmp_path, host, "claude", version) as stage,
    ):
        credentials = server.expired(stage.home)
        environment = {**stage.amux_environment, **server.environment}
        kept = {name: value for name, value in environment.items() if name not in KEY}
        subprocess.run(
            [AMUX, "launch", "claude", "--executable", stage.executable, "--", "-p", "hi"],
            env=kept,
            cwd=stage.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,  # there is no model to answer
        )
        assert server.refreshes == ["token-0"]
        assert stored(credentials) == server.valid
        assert list((stage.home / ".claude" / "sessions").iterdir()) == []


def test_a_launch_that_fails_by_its_control_leaves_the_login(
    tmp_path: Path, host: Host, version: str
) -> None:
    with (
        login_server(tmp_path / "login") as server,
        staged(tmp_path, host, "claude", version) as stage,
    ):
        server.policy = {"env": {"CLAUDE_CODE_DISABLE_AUTO_MEMORY": "0"}}
        credentials = server.expired(stage.home, kind="enterprise")
        environment = {**stage.environment, **server.environment}
        kept = {name: value for name, value in environment.items() if name not in KEY}
        with pytest.raises(MemoryNotIsolated, match="CLAUDE_CODE_DISABLE_AUTO_MEMORY"):
            replace(stage, environment=kept).turn()
        assert server.refreshes == ["token-0"]
        assert stored(credentials) == server.valid
