"""`amux probe codex`: it passes on the real agent, and fails where a control has no effect."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from amux.launcher.cli.probe import command
from fixtures.codex import native
from fixtures.pinned import CODEX_VERSIONS, pinned

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

versions = pytest.mark.parametrize("version", CODEX_VERSIONS)


def probe(executable: Path, *options: str) -> Result:
    return CliRunner().invoke(command, ["codex", "--codex", str(executable), *options])


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.agents
@versions
def test_the_probe_passes_on_the_pinned_agent_in_a_table_and_as_json(version: str) -> None:
    executable = pinned("codex", version).executable
    shown = probe(executable)
    assert shown.exit_code == 0, shown.output
    assert f"codex {version} (shown)" in shown.output
    assert "not shown: what a live model does" in shown.output
    printed = json.loads(probe(executable, "--json").output)
    assert printed["passed"] is True
    assert printed["version"] == version
    seen = {one["subject"]: one["observed"] for one in printed["findings"]}
    assert seen["memories.use_memories"] == "false"
    assert seen["stored memory mode"] == "disabled"
    assert seen["the user's own files"] == "unchanged"
    assert seen["model requests"] == "0"


@pytest.mark.agents
@versions
@pytest.mark.parametrize(
    ("flag", "named"),
    [
        ("memories.generate_memories=false", "memories.generate_memories is true"),
        ("features.memory_tool=false", "features.memories is true"),
    ],
)
def test_the_probe_fails_on_an_agent_that_one_control_does_not_reach(
    tmp_path: Path, version: str, flag: str, named: str
) -> None:
    deaf = script(
        tmp_path / "codex",
        f'for word; do shift; [ "$word" = "{flag}" ] && word=model_verbosity=\'"low"\'; '
        f'set -- "$@" "$word"; done; exec {native(version)} "$@"',
    )
    shown = probe(deaf)
    assert shown.exit_code == 1
    assert "FAIL" in shown.output
    assert named in shown.output


@pytest.mark.agents
@versions
def test_the_probe_launches_with_every_flag_of_a_launch_so_one_that_kills_the_agent_is_seen(
    tmp_path: Path, version: str
) -> None:
    dying = script(
        tmp_path / "codex",
        'case " $* " in *" mcp_servers.amux.command="*) echo no such flag >&2; exit 1;; esac\n'
        f'exec {native(version)} "$@"',
    )
    shown = probe(dying)
    assert shown.exit_code == 1
    assert "no such flag" in shown.output


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        (
            "codex-cli 0.120.0",
            "Codex 0.120.0 is too old for memory: it cannot switch native memory off",
        ),
        ("hello", "printed 'hello', which is not Codex's version"),
    ],
)
def test_a_version_that_is_too_old_or_unknown_is_said(
    tmp_path: Path, printed: str, words: str
) -> None:
    shown = probe(script(tmp_path / "codex", f"echo {printed}"))
    assert shown.exit_code == 1
    assert words in shown.output


def test_a_newer_version_that_ends_at_once_is_reported_with_its_own_words(tmp_path: Path) -> None:
    body = '[ "$1" = --version ] && echo codex-cli 9.0.0 && exit; echo no app-server >&2; exit 3'
    shown = probe(script(tmp_path / "codex", body))
    assert shown.exit_code == 1
    assert "codex 9.0.0 (not among the versions shown)" in shown.output
    assert "exit 3" in shown.output
    assert "no app-server" in shown.output
