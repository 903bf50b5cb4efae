"""What a version manager puts on PATH: one file for many programs and versions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from amux.launcher.launch import launch
from amux.launcher.probe.talk import take_turn
from amux.launcher.request import LaunchRequest
from amux.launcher.session.store import SessionStore
from amux.providers.errors import UnsupportedVersion
from fixtures.pinned import CLAUDE_VERSIONS, CODEX_VERSIONS, pinned
from fixtures.stages import staged

if TYPE_CHECKING:
    from pathlib import Path

    from amux.launcher.host import Host
    from fixtures.stages import Stage

pytestmark = pytest.mark.agents

PROMPTS = {"claude": ("-p", "hi"), "codex": ("exec", "--skip-git-repo-check", "hi")}


def shim(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)
    return path


def launched(stage: Stage, program: Path) -> tuple[str, str]:
    """Return the version in the report, and the one that the model's request names."""
    tail = (*stage.options, *PROMPTS[stage.provider])
    done, turn = stage.amux(
        "launch", stage.provider, "--json", "--executable", str(program), "--", *tail
    )
    events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    (report,) = [one["report"] for one in events if one["event"] == "launched"]
    assert turn is not None
    return report["agent_version"], turn.headers["user-agent"]


@pytest.mark.parametrize(
    ("agent", "versions"), [("claude", CLAUDE_VERSIONS), ("codex", CODEX_VERSIONS)]
)
def test_what_a_shim_starts_today_is_what_is_asked_and_reported(
    tmp_path: Path, host: Host, agent: str, versions: tuple[str, str]
) -> None:
    chosen = tmp_path / "chosen"
    program = shim(tmp_path / agent, f'exec "$(cat {chosen})" "$@"')
    with staged(tmp_path / "stage", host, agent, versions[0]) as stage:
        for version in (*versions, versions[0]):
            chosen.write_text(str(pinned(agent, version).executable))
            reported, sent = launched(stage, program)
            assert reported == version
            assert version in sent


def test_one_program_under_two_names_is_two_agents(tmp_path: Path, host: Host) -> None:
    versions = {"claude": CLAUDE_VERSIONS[1], "codex": CODEX_VERSIONS[1]}
    cases = [
        f'{name}) exec {pinned(name, one).executable} "$@";;' for name, one in versions.items()
    ]
    manager = shim(tmp_path / "manager", 'case "$(basename "$0")" in', *cases, "esac")
    for name, version in versions.items():
        (tmp_path / name).symlink_to(manager)
        with staged(tmp_path / f"stage-{name}", host, name, version) as stage:
            assert launched(stage, tmp_path / name)[0] == version


def test_a_shim_that_needs_the_users_home_and_folder_is_asked_in_them(
    tmp_path: Path, host: Host
) -> None:
    with staged(tmp_path / "stage", host, "claude", CLAUDE_VERSIONS[1]) as stage:
        (stage.cwd / "chosen").write_text("claude")
        (stage.home / "claude").symlink_to(stage.executable)
        program = shim(tmp_path / "claude", 'exec "$HOME/$(cat chosen)" "$@"')
        assert launched(stage, program)[0] == CLAUDE_VERSIONS[1]


def test_a_claude_whose_banner_names_another_version_is_planned_as_what_it_is(
    tmp_path: Path, host: Host
) -> None:
    real = pinned("claude", "2.1.332").executable
    banner = 'if [ "$1" = --version ]; then echo "2.1.197 (Claude Code)"; exit; fi'
    program = shim(tmp_path / "claude", banner, f'exec {real} "$@"')
    with staged(tmp_path / "stage", host, "claude", "2.1.332") as stage:
        assert launched(stage, program)[0] == "2.1.332"


@pytest.mark.parametrize("words", [PROMPTS["codex"], ()], ids=["exec", "channel"])
def test_a_codex_whose_banner_names_another_version_is_planned_as_what_it_is(
    tmp_path: Path, host: Host, words: tuple[str, ...]
) -> None:
    real = pinned("codex", "0.171.0").executable
    banner = 'if [ "$1" = --version ]; then echo "codex-cli 0.149.0"; exit; fi'
    program = shim(tmp_path / "codex", banner, f'exec {real} "$@"')
    with staged(tmp_path / "stage", host, "codex", "0.171.0") as stage:
        if words:
            assert launched(stage, program)[0] == "0.171.0"
            return
        request = LaunchRequest(
            provider="codex",
            cwd=stage.cwd,
            environment=dict(stage.environment),
            executable=program,
        )
        with launch(request, host) as run:
            assert run.report.agent_version == "0.171.0"
            assert not any("0.149.0" in text for text in run.report.warnings)
            take_turn("codex", run.channel, "hi", native_id=run.report.native_id)
    assert SessionStore(host.home).load(run.report.session).agent_version == "0.171.0"


def test_a_codex_that_is_in_truth_too_old_is_refused_as_that(tmp_path: Path, host: Host) -> None:
    answer = '{"id": 1, "result": {"codexHome": "%s", "userAgent": "amux/0.120.0 (x)"}}'
    with staged(tmp_path / "stage", host, "codex", "0.171.0") as stage:
        program = shim(
            tmp_path / "codex",
            'if [ "$1" = --version ]; then echo "codex-cli 0.171.0"; exit; fi',
            f"read -r question; printf '{answer}\\n' \"$HOME/.codex\"; exec cat",
        )
        request = LaunchRequest(
            provider="codex",
            cwd=stage.cwd,
            environment=dict(stage.environment),
            executable=program,
        )
        with pytest.raises(UnsupportedVersion, match=r"Codex 0\.120\.0 is too old for memory"):
            launch(request, host)


def test_a_claude_that_does_not_know_an_option_of_amuxs_is_refused_by_its_name(
    tmp_path: Path, host: Host
) -> None:
    real = pinned("claude", "2.1.332").executable
    dies = "echo \"error: unknown option '$word'\" >&2; exit 1"
    loop = f'for word; do case "$word" in --system-prompt-snapshot=*) {dies};; esac; done'
    program = shim(tmp_path / "claude", loop, f'exec {real} "$@"')
    with (
        staged(tmp_path / "stage", host, "claude", "2.1.332") as stage,
        pytest.raises(UnsupportedVersion, match="does not know --system-prompt-snapshot, which"),
    ):
        stage.turn(executable=program)


def test_a_print_launch_of_it_is_refused_by_that_name_too_and_never_begun(
    tmp_path: Path, host: Host
) -> None:
    real = pinned("claude", "2.1.197").executable
    banner = 'if [ "$1" = --version ]; then echo "2.1.332 (Claude Code)"; exit; fi'
    program = shim(tmp_path / "claude", banner, f'exec {real} "$@"')
    with staged(tmp_path / "stage", host, "claude", "2.1.197") as stage:
        tail = (*stage.options, *PROMPTS["claude"])
        done, turn = stage.amux("launch", "claude", "--executable", str(program), "--", *tail)
        assert (done.returncode, turn) == (125, None), done.stderr
    assert "2.1.332 does not know --append-subagent-system-prompt, which amux" in done.stderr
    (record,) = SessionStore(host.home).list().records
    assert "--append-subagent-system-prompt" in record.failure
