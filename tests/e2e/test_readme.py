"""What the README tells people to type works as it is written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amux.hub.home import open_home
from amux.hub.local import stop_hub
from amux.launcher.probe.model import Say, ScriptedModel
from amux.launcher.probe.stage import stage_claude, stage_codex
from amux.launcher.session.store import SessionStore
from fixtures import accounts
from fixtures.isolated import reachable_agent
from fixtures.pinned import pinned
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.agents

README = (Path(__file__).parents[2] / "README.md").read_text()


def commands(*, sudo: bool = False) -> list[str]:
    """Return the commands of the section «Use it»: the caller's own, or those by sudo."""
    section = README.partition("## Use it")[2].partition("## How it fits")[0]
    blocks = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return [line.removeprefix("sudo ") for line in lines if line.startswith("sudo ") is sudo]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Give an environment in which `amux`, `claude` and `codex` are on PATH, and no account."""
    commands_folder = tmp_path / "bin"
    commands_folder.mkdir()
    for provider, version in (("claude", "2.1.332"), ("codex", "0.153.4")):
        (commands_folder / provider).symlink_to(pinned(provider, version).executable)
    (commands_folder / "amux").symlink_to(Path(sys.executable).with_name("amux"))
    with ScriptedModel(lambda turn: Say(f"I saw {len(turn.tools)} tools.")) as model:
        home = tmp_path / "home"
        environ = {**stage_claude(home, model.url), **stage_codex(home, model.url)}
        environ["PATH"] = f"{commands_folder}:{os.environ['PATH']}"
        environ["AMUX_RUNS"] = str(tmp_path / "runs")
        yield environ
        stop_hub(open_home(environ))


def test_the_commands_of_the_readme_do_what_it_says(stage: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "release.md").write_text("# Release\n\nreleases are cut on Tuesdays\n")
    outputs: dict[str, str] = {}
    for command in commands():
        done = subprocess.run(
            ("/bin/bash", "-c", command),
            env=stage,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        outputs[" ".join(command.split()[1:3])] = done.stdout
    assert "tools" in outputs["launch claude"]
    assert "tools" in outputs["launch codex"]
    assert "claude" in outputs["sessions list"]
    assert "codex" in outputs["sessions list"]
    found = json.loads(outputs["memory search"])
    assert found["matches"][0]["path"] == "notes/release.md"
    assert outputs["memory export"].endswith("Tuesdays\n")


def test_the_python_example_of_the_readme_talks_to_claude(
    stage: dict[str, str], tmp_path: Path
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run(
        (sys.executable, "-c", example),
        env=stage,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "agent     claude 2.1.332, stream" in done.stdout
    assert re.fullmatch(r"I saw \d+ tools\.", done.stdout.splitlines()[-1])


@pytest.mark.root
def test_the_commands_for_other_people_give_alice_an_agent_and_a_memory_of_her_own(
    tmp_path: Path,
) -> None:
    (tmp_path / "amux").symlink_to(Path(sys.executable).with_name("amux"))
    with (
        accounts.reachable_folder() as folder,
        accounts.account() as alice,
        reachable_agent("codex", "0.153.4") as agent,
        ScriptedModel(lambda turn: Say(f"I saw {len(turn.tools)} tools.")) as model,
    ):
        stage_codex(alice.home, model.url)
        config = alice.home / ".codex" / "config.toml"
        config.write_text(config.read_text().replace('env_key = "SCRIPTED_MODEL_KEY"\n', ""))
        for path in (config.parent, config):
            os.chown(path, alice.uid, alice.gid)
        environ = {
            "HOME": str(folder),
            "PATH": f"{tmp_path}:{agent.executable.parent}:{agent.path}",
            "AMUX_HOME": str(folder / "amux"),
            "AMUX_RUNS": str(folder / "place" / "runs"),
        }
        (folder / "amux").mkdir(mode=0o700)
        try:
            for command in commands(sudo=True):
                done = subprocess.run(
                    ("/bin/bash", "-c", command.replace("alice-agent", alice.name)),
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=SECONDS,
                    check=False,
                )
                assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
            (record,) = SessionStore(open_home(environ)).list().records
        finally:
            stop_hub(open_home(environ))
    assert "tools" in done.stdout
    assert (record.user, record.principal, record.binding) == (
        alice.name,
        "alice",
        "principal:alice",
    )


def test_every_page_that_the_readme_and_the_docs_name_is_there() -> None:
    root = Path(__file__).parents[2]
    pages = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]
    missing = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert missing == []
