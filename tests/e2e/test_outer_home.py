"""A launch with a private home below the caller's own reads nothing of it, or says what."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from amux.launcher.probe.stage import STAGES
from fixtures.pinned import CLAUDE_VERSIONS, CODEX_VERSIONS, PI_VERSIONS
from fixtures.stages import AMUX, staged
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from amux.launcher.host import Host
    from fixtures.stages import Stage

pytestmark = pytest.mark.agents

MINE = "MARKED-BY-THE-CALLER"
PROMPTS = {
    "claude": ("-p", "hi"),
    "codex": ("exec", "--skip-git-repo-check", "hi"),
    "pi": ("-p", "hi"),
}


def furnish(home: Path) -> None:
    """Fill the caller's home with instructions, as agents find them in folders above."""
    for name in (
        "CLAUDE.md",
        "CLAUDE.local.md",
        "AGENTS.md",
        ".claude/CLAUDE.md",
        ".claude/rules/one.md",
        ".claude/rules/more/two.md",
    ):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{MINE} {name}\n")


def launched(stage: Stage, cwd: Path, private: Path) -> tuple[dict[str, Any], str]:
    """Return the report and all that was sent to the model."""
    STAGES[stage.provider](private, stage.model.url, path=stage.agent.path)
    own = {"HOME", "PATH"}
    passed = [word for name in set(stage.environment) - own for word in ("--env", name)]
    done = subprocess.run(
        [
            *(str(AMUX), "launch", stage.provider, "--json", "--private-home", str(private)),
            *("--executable", str(stage.executable), *passed, "--", *stage.options),
            *PROMPTS[stage.provider],
        ],
        env=stage.amux_environment,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    (report,) = [one["report"] for one in events if one["event"] == "launched"]
    return report, json.dumps([turn.body for turn in stage.model.turns])


@pytest.mark.parametrize("version", CLAUDE_VERSIONS)
@pytest.mark.parametrize("home", ["home", "home [of] (one)"])
def test_claude_reads_none_of_the_callers_instructions_and_all_of_the_projects(
    tmp_path: Path, host: Host, version: str, home: str
) -> None:
    with staged(tmp_path / home, host, "claude", version) as stage:
        project = stage.home / "work" / "project"
        project.mkdir(parents=True)
        subprocess.run(["/usr/bin/git", "init", "-q", project], check=True)
        furnish(stage.home)
        (stage.home / "work" / "CLAUDE.md").write_text("OF-THE-WORK")
        (project / "CLAUDE.md").write_text("OF-THE-PROJECT")
        report, sent = launched(stage, project, tmp_path / "private")
    assert MINE not in sent
    assert "OF-THE-PROJECT" in sent
    assert "OF-THE-WORK" in sent
    assert report["warnings"] == []


@pytest.mark.parametrize("version", CLAUDE_VERSIONS)
def test_claude_in_the_callers_home_itself_is_told_what_it_reads(
    tmp_path: Path, host: Host, version: str
) -> None:
    with staged(tmp_path, host, "claude", version) as stage:
        furnish(stage.home)
        report, sent = launched(stage, stage.home, tmp_path / "private")
        (warning,) = report["warnings"]
        assert str(stage.home / "CLAUDE.md") in warning
        assert MINE in sent


@pytest.mark.parametrize("version", PI_VERSIONS)
def test_pi_says_which_of_the_callers_instructions_it_reads(
    tmp_path: Path, host: Host, version: str
) -> None:
    with staged(tmp_path, host, "pi", version) as stage:
        project = stage.home / "work"
        project.mkdir(parents=True)
        furnish(stage.home)
        report, sent = launched(stage, project, tmp_path / "private")
        assert f"the agent reads {stage.home / 'AGENTS.md'};" in " ".join(report["warnings"])
        assert f"{MINE} AGENTS.md" in sent


@pytest.mark.parametrize("version", CODEX_VERSIONS)
@pytest.mark.parametrize("repository", ["home", "project", ""])
def test_codex_says_which_of_the_callers_instructions_it_reads_and_no_others(
    tmp_path: Path, host: Host, version: str, repository: str
) -> None:
    with staged(tmp_path, host, "codex", version) as stage:
        project = stage.home / "work"
        project.mkdir(parents=True)
        furnish(stage.home)
        if repository:
            root = stage.home if repository == "home" else project
            subprocess.run(["/usr/bin/git", "init", "-q", root], check=True)
        report, sent = launched(stage, project, tmp_path / "private")
        said = " ".join(report["warnings"])
        assert (str(stage.home / "AGENTS.md") in said) is (repository == "home")
        assert (f"{MINE} AGENTS.md" in sent) is (repository == "home")
