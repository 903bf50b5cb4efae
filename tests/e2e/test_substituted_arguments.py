"""A shell's `<(command)` among an agent's arguments reaches the model as a file would."""

from __future__ import annotations

import json
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

from amux.launcher.memory.protocol import render
from fixtures.hosts import running_host
from fixtures.stages import AMUX, occurrences, staged
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from amux.launcher.probe.model import Turn
    from fixtures.stages import Stage

pytestmark = pytest.mark.agents

SERVER = {"mcpServers": {"other": {"command": "/bin/false"}}}
OTHERS = f"--settings <(printf '{{}}') --mcp-config=<(printf '{json.dumps(SERVER)}')"
SCHEMA = {
    "type": "object",
    "properties": {"said": {"type": "string"}},
    "required": ["said"],
    "additionalProperties": False,
}


def shell(stage: Stage, agent: str, words: str) -> Turn:
    """Launch in a shell, which makes the substitutions; return the model request."""
    options = shlex.join(("--executable", str(stage.executable), "--", *stage.options))
    done = subprocess.run(
        ["/bin/bash", "-c", f"{AMUX} launch {agent} {options} {words}"],
        env=stage.amux_environment,
        cwd=stage.cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return stage.model.turns[-1]


@pytest.mark.parametrize(
    ("agent", "version", "words"),
    [
        (
            "claude",
            "2.1.332",
            f"--append-system-prompt-file <(printf 'Be brief.') {OTHERS} -p hi",
        ),
        ("claude", "2.1.197", "-p hi --append-system-prompt-file <(printf 'Be brief.')"),
        ("pi", "0.74.2", "--append-system-prompt <(printf 'Be brief.') -p hi"),
        ("pi", "1.6.0", "--append-system-prompt <(printf 'Be brief.') -p hi"),
    ],
)
def test_an_appended_text_of_a_substitution_is_merged(
    tmp_path: Path, agent: str, version: str, words: str
) -> None:
    protocol = render("mcp" if agent == "claude" else "cli").text
    with running_host(tmp_path / "host") as host, staged(tmp_path, host, agent, version) as stage:
        turn = shell(stage, agent, words)
        assert occurrences(turn, f"Be brief.\n\n{protocol}".rstrip()) == 1
        assert occurrences(turn, protocol.rstrip()) == 1


def test_codex_reads_a_schema_from_one(tmp_path: Path) -> None:
    with (
        running_host(tmp_path / "host") as host,
        staged(tmp_path, host, "codex", "0.171.0") as stage,
    ):
        words = f"exec --skip-git-repo-check --output-schema <(printf '{json.dumps(SCHEMA)}') hi"
        turn = shell(stage, "codex", words)
        assert turn.body["text"]["format"]["schema"] == SCHEMA
        assert occurrences(turn, render("mcp").text) == 1
