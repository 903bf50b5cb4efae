"""Codex's own memory is off in a bound launch, and the launch fails where it is not."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from amux.providers.errors import NotConfirmed
from fixtures.codex import (
    ALIAS_ON,
    MEMORY_ON,
    SUMMARY,
    grant_for,
    open_codex,
    resumed,
    staged,
)
from fixtures.pinned import CODEX_VERSIONS
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from amux.launcher.probe.model import Turn
    from fixtures.codex import CodexHome, StagedCodex

pytestmark = [pytest.mark.agents, pytest.mark.parametrize("version", CODEX_VERSIONS)]

BLOCK = "## Memory"
"""The heading of the block that native memory puts after the developer instructions."""


def consolidations(stage: StagedCodex) -> list[Turn]:
    return [
        turn
        for turn in stage.model.turns
        if turn.headers.get("x-openai-subagent") == "memory_consolidation"
    ]


def ordinary(stage: StagedCodex) -> list[Turn]:
    return [turn for turn in stage.model.turns if "x-openai-subagent" not in turn.headers]


def is_consolidation(turn: Turn) -> bool:
    return turn.headers.get("x-openai-subagent") == "memory_consolidation"


def on_in_user_file(home: CodexHome) -> None:
    home.configure(MEMORY_ON)


def alias_in_user_file(home: CodexHome) -> None:
    home.configure(ALIAS_ON)


def on_in_project_file(home: CodexHome) -> None:
    home.trust()
    (home.cwd / ".codex").mkdir()
    (home.cwd / ".codex" / "config.toml").write_text(MEMORY_ON)


def alias_in_project_file(home: CodexHome) -> None:
    home.trust()
    (home.cwd / ".codex").mkdir()
    (home.cwd / ".codex" / "config.toml").write_text(ALIAS_ON)


FILES = [on_in_user_file, alias_in_user_file, on_in_project_file, alias_in_project_file]


def test_without_a_grant_the_same_home_has_native_memory_on(tmp_path: Path, version: str) -> None:
    with staged(tmp_path, version) as stage:
        on_in_user_file(stage.home)
        stage.home.remember()
        with open_codex(stage.home, None) as codex:
            codex.turn("hello")
            stage.model.wait_for(is_consolidation, deadline=SECONDS)
        assert BLOCK in ordinary(stage)[0].system
        assert list(stage.home.modes().values()) == ["enabled"]


@pytest.mark.parametrize("switch_on", FILES, ids=lambda one: one.__name__)
def test_files_of_user_and_project_cannot_switch_native_memory_on(
    tmp_path: Path, version: str, switch_on: Callable[[CodexHome], None]
) -> None:
    with staged(tmp_path, version) as stage:
        switch_on(stage.home)
        stage.home.remember()
        with open_codex(stage.home, grant_for(stage.home)) as codex:
            codex.turn("hello")
            codex.turn("again")
        assert {one.control: one.observed for one in codex.confirmed.evidence} == {
            "codexHome": str(stage.home.codex),
            "features.memories": "false",
            "memories.use_memories": "false",
            "memories.generate_memories": "false",
            "feature memories": "disabled",
            "memoryMode": "disabled",
        }
        assert len(ordinary(stage)) == 2
        assert not any(BLOCK in turn.system or SUMMARY in turn.system for turn in ordinary(stage))
        assert consolidations(stage) == []
        assert stage.home.modes() == {codex.native_id: "disabled"}


@pytest.mark.parametrize(
    "arguments",
    [("--enable", "memories", "-c", "features.memory_tool=true"), ("--enable", "memory_tool")],
)
def test_a_callers_own_flags_cannot_switch_native_memory_on(
    tmp_path: Path, version: str, arguments: tuple[str, ...]
) -> None:
    with staged(tmp_path, version) as stage:
        stage.home.remember()
        with open_codex(stage.home, grant_for(stage.home), arguments=arguments) as codex:
            codex.turn("hello")
        assert BLOCK not in ordinary(stage)[0].system
        assert consolidations(stage) == []


def test_a_thread_config_would_switch_it_on_so_amux_owns_that_object(
    tmp_path: Path, version: str
) -> None:
    dangerous = {
        "features": {"memories": True},
        "memories": {"use_memories": True, "generate_memories": True},
    }
    harmless = json.dumps({"features": {"image_generation": False}, "model_verbosity": "low"})
    with staged(tmp_path, version) as stage:
        stage.home.remember()
        with open_codex(
            stage.home, grant_for(stage.home), options={"thread-config": harmless}
        ) as codex:
            codex.turn("ours")
            answer = codex.channel.request(
                "thread/start", {"cwd": str(stage.home.cwd), "config": dangerous}, deadline=SECONDS
            )
            theirs = {"threadId": answer["thread"]["id"], "input": [{"type": "text", "text": "x"}]}
            codex.channel.request("turn/start", theirs, deadline=SECONDS)
            bypassed = stage.model.wait_for(lambda turn: turn.user[-1:] == ("x",), deadline=SECONDS)
        assert BLOCK not in ordinary(stage)[0].system
        assert BLOCK in bypassed.system


def in_namespace(etc: Path) -> tuple[str, ...]:
    """Return a wrapper that runs a command with another /etc, which holds Codex's system files."""
    script = f'mount --bind "{etc}" /etc && exec "$@"'
    return ("/usr/bin/unshare", "--mount", "/bin/sh", "-c", script, "wrapper")


def system_file(folder: Path, name: str, text: str) -> tuple[str, ...]:
    etc = folder / "etc"
    (etc / "codex").mkdir(parents=True)
    (etc / "passwd").write_bytes(b"root:x:0:0:root:/root:/bin/sh\n")
    (etc / "codex" / name).write_text(text)
    return in_namespace(etc)


@pytest.mark.root
@pytest.mark.parametrize("text", [MEMORY_ON, ALIAS_ON], ids=["values", "alias"])
def test_a_system_file_cannot_switch_native_memory_on(
    tmp_path: Path, version: str, text: str
) -> None:
    with staged(tmp_path / "home", version) as stage:
        wrapper = system_file(tmp_path, "config.toml", text)
        with open_codex(stage.home, grant_for(stage.home), wrapper=wrapper) as codex:
            codex.turn("hello")
        assert BLOCK not in ordinary(stage)[0].system
        assert stage.home.modes() == {codex.native_id: "disabled"}


@pytest.mark.root
@pytest.mark.parametrize(
    ("name", "text", "value", "whence"),
    [
        ("managed_config.toml", MEMORY_ON, "memories.use_memories", "/etc/codex/managed_config"),
        ("managed_config.toml", ALIAS_ON, "features.memories", "memory_tool"),
        ("requirements.toml", MEMORY_ON.split("[memories]")[0], "features.memories", "requirement"),
        ("requirements.toml", ALIAS_ON, "features.memories", "requirement"),
    ],
    ids=["managed", "managed alias", "required", "required alias"],
)
def test_what_an_administrator_pins_fails_the_launch_and_is_named(  # noqa: PLR0913, PLR0917  # cases
    tmp_path: Path, version: str, name: str, text: str, value: str, whence: str
) -> None:
    with staged(tmp_path / "home", version) as stage:
        wrapper = system_file(tmp_path, name, text)
        with (
            pytest.raises(NotConfirmed) as caught,
            open_codex(stage.home, grant_for(stage.home), wrapper=wrapper),
        ):
            pass
        assert f"{value} is true" in str(caught.value)
        assert whence in str(caught.value)
        assert stage.model.turns == []


def test_the_mode_is_disabled_again_on_resume_and_on_fork(tmp_path: Path, version: str) -> None:
    with staged(tmp_path, version) as stage:
        with open_codex(stage.home, grant_for(stage.home)) as first:
            first.turn("hello")
            enabled = {"threadId": first.native_id, "mode": "enabled"}
            first.channel.request("thread/memoryMode/set", enabled, deadline=SECONDS)
        assert stage.home.modes() == {first.native_id: "enabled"}
        again = grant_for(stage.home, instructions=first.confirmed.instructions)
        with open_codex(stage.home, again, resume=resumed(first.native_id)) as second:
            second.turn("go on")
        assert second.native_id == first.native_id
        assert stage.home.modes() == {first.native_id: "disabled"}
        with open_codex(stage.home, again, resume=resumed(first.native_id, fork=True)) as third:
            third.turn("elsewhere")
        assert third.native_id != first.native_id
        assert set(stage.home.modes().values()) == {"disabled"}


def test_a_broken_user_file_fails_the_launch_with_codex_s_own_words(
    tmp_path: Path, version: str
) -> None:
    with staged(tmp_path, version) as stage:
        stage.home.configure("[features\n")
        with (
            pytest.raises(NotConfirmed, match=r"config\.toml"),
            open_codex(stage.home, grant_for(stage.home)),
        ):
            pass


def contents(folder: Path) -> dict[str, bytes]:
    return {
        os.path.relpath(path, folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def test_no_file_of_the_users_codex_home_is_changed_by_a_bound_launch(
    tmp_path: Path, version: str
) -> None:
    with staged(tmp_path / "bound", version) as stage, staged(tmp_path / "bare", version) as bare:
        for home in (stage.home, bare.home):
            home.remember()
            (home.codex / "AGENTS.md").write_text("Be kind.\n")
            (home.codex / "agents").mkdir()
            (home.codex / "agents" / "mole.toml").write_text('name = "mole"\ndescription = "d"\n')
        before = contents(stage.home.codex)
        with open_codex(stage.home, grant_for(stage.home)) as codex:
            codex.turn("hello")
        with open_codex(bare.home, None) as other:
            other.turn("hello")
        after = contents(stage.home.codex)
        assert {name: after.get(name) for name in before} == before
        made = {name.split("/")[0].split("_")[0] for name in after.keys() - before.keys()}
        usual = {name.split("/")[0].split("_")[0] for name in contents(bare.home.codex)}
        assert made <= usual
