"""Memories of others are named in the report, and Claude's own is said to be left as it is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from fixtures.pinned import CLAUDE_VERSIONS
from fixtures.stages import occurrences, staged
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from amux.launcher.host import Host
    from fixtures.stages import Stage

pytestmark = [pytest.mark.agents, pytest.mark.parametrize("version", CLAUDE_VERSIONS)]

KIT = "KIT-MEMORY: the user likes plums"
HOOK = {"hooks": [{"type": "command", "command": f"echo {KIT!r}"}]}
BOTH = {"hooks": {"SessionStart": [HOOK], "UserPromptSubmit": [HOOK]}}


@pytest.fixture
def stage(tmp_path: Path, host: Host, version: str) -> Iterator[Stage]:
    with staged(tmp_path / "stage", host, "claude", version) as made:
        yield made


def write(path: Path, values: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))
    return path


def plugin(folder: Path) -> Path:
    write(folder / ".claude-plugin" / "plugin.json", {"name": "memkit", "version": "1.0.0"})
    write(folder / "hooks" / "hooks.json", BOTH)
    return folder


def install(stage: Stage, folder: Path) -> None:
    """Install the kit from a marketplace of its own, as a user does."""
    shutil.copytree(plugin(folder / "made"), folder / "shop" / "memkit")
    entry = {"name": "memkit", "source": "./memkit", "description": "kit"}
    shop = {"name": "shop", "owner": {"name": "x"}, "plugins": [entry]}
    write(folder / "shop" / ".claude-plugin" / "marketplace.json", shop)
    for words in (("marketplace", "add", str(folder / "shop")), ("install", "memkit@shop")):
        subprocess.run(
            [stage.executable, "plugin", *words],
            env=stage.environment,
            cwd=stage.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=True,
        )


@pytest.mark.parametrize("place", ["user", "project", "local", "option", "plugin-dir", "plugin"])
def test_a_kit_that_puts_its_text_into_the_conversation_is_named(
    stage: Stage, tmp_path: Path, version: str, place: str
) -> None:
    del version
    words: tuple[str, ...] = ()
    project = stage.cwd / ".claude"
    match place:
        case "user":
            named = str(write(stage.home / ".claude" / "settings.json", BOTH))
        case "project":
            named = str(write(project / "settings.json", BOTH))
        case "local":
            named = str(write(project / "settings.local.json", BOTH))
        case "option":
            named, words = "--settings", ("--settings", json.dumps(BOTH))
        case "plugin-dir":
            named = str(plugin(tmp_path / "kit"))
            words = ("--plugin-dir", named)
        case _:
            install(stage, tmp_path / "install")
            named = "memkit@shop"
    report, turn = stage.turn(*words)
    (warning,) = [text for text in report.warnings if "text of their own" in text]
    assert named in warning
    assert "SessionStart, UserPromptSubmit" in warning
    assert KIT not in warning
    assert occurrences(turn, KIT) > 0


def test_hooks_that_do_not_run_are_not_named(stage: Stage, version: str) -> None:
    del version
    write(stage.home / ".claude" / "settings.json", BOTH)
    report, turn = stage.turn("--setting-sources", "project")
    assert report.warnings == ()
    assert occurrences(turn, KIT) == 0


def test_a_new_conversation_says_once_how_much_of_claudes_memory_it_leaves_unread(
    stage: Stage, version: str
) -> None:
    del version
    slug = re.sub("[^A-Za-z0-9]", "-", str(stage.cwd))
    folder = stage.home / ".claude" / "projects" / slug / "memory"
    folder.mkdir(parents=True)
    for name in ("MEMORY.md", "one.md", "two.md"):
        (folder / name).write_text(KIT)
    before = stage.print_of("home/.claude/projects")
    report, turn = stage.turn()
    (said,) = report.warnings
    assert "3 files of it are not read in this conversation and left alone" in said
    assert str(folder) in said
    assert occurrences(turn, KIT) == 0
    again, _ = stage.turn(session=report.session)
    assert again.warnings == ()
    after = stage.print_of("home/.claude/projects")
    assert {path: after[path] for path in before} == before
