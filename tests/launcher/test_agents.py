"""Finding the agent's command, its interpreter and its version."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from amux.launcher.errors import AgentNotFound
from amux.launcher.steps.executable import find_agent
from amux.launcher.steps.versions import VersionCache, ask_version
from amux.launcher.target import AgentCommand

if TYPE_CHECKING:
    from pathlib import Path


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_script_behind_env_gets_its_interpreter_resolved_and_both_folders(
    tmp_path: Path,
) -> None:
    node = executable(tmp_path / "node-bin" / "node", "#!/bin/sh\n")
    agent = executable(tmp_path / "agent-bin" / "agent", "#!/usr/bin/env node\n")
    search = f"{agent.parent}:{node.parent}"
    found = find_agent("agent", search_path=search)
    assert found.argv == (str(node), str(agent))
    assert found.folders == (str(agent.parent), str(node.parent))


def test_env_with_dash_s_keeps_the_interpreters_own_options(tmp_path: Path) -> None:
    node = executable(tmp_path / "node", "#!/bin/sh\n")
    executable(tmp_path / "agent", "#!/usr/bin/env -S node --no-warnings\n")
    found = find_agent("agent", search_path=str(tmp_path))
    assert found.argv == (str(node), "--no-warnings", str(tmp_path / "agent"))


def test_a_binary_is_started_as_it_is(tmp_path: Path) -> None:
    agent = executable(tmp_path / "agent", "")
    agent.write_bytes(b"\x7fELF" + b"\0" * 60)
    found = find_agent("agent", search_path=str(tmp_path))
    assert found == AgentCommand(argv=(str(agent),), folders=(str(tmp_path),))


@pytest.mark.parametrize(
    ("first_line", "sentence"),
    [
        ("#!/usr/bin/env nodeless", "needs `nodeless`, which is not on PATH"),
        ("#!/usr/bin/env", "names no interpreter"),
        ("#!/nowhere/node", "cannot be run: .'/nowhere/node'."),
    ],
)
def test_an_interpreter_that_is_not_there_is_named(
    tmp_path: Path, first_line: str, sentence: str
) -> None:
    executable(tmp_path / "agent", f"{first_line}\n")
    with pytest.raises(AgentNotFound, match=sentence):
        find_agent("agent", search_path=str(tmp_path))


def test_a_batch_shim_is_refused_with_what_to_name_instead(tmp_path: Path) -> None:
    shim = executable(tmp_path / "agent.cmd", "@echo off\n")
    with pytest.raises(AgentNotFound, match="name the program that it starts"):
        find_agent("agent", search_path="", given=shim)


def test_a_given_file_that_cannot_be_executed_is_refused(tmp_path: Path) -> None:
    plain = tmp_path / "agent"
    plain.write_text("#!/bin/sh\n")
    with pytest.raises(AgentNotFound, match="is not an executable file"):
        find_agent("agent", search_path="", given=plain)


def test_a_version_is_asked_once_for_a_file_and_again_when_it_changes(tmp_path: Path) -> None:
    agent = executable(tmp_path / "node_modules" / "agent" / "cli.js", "one")
    command = AgentCommand(argv=(sys.executable, str(agent)), folders=())
    cache = VersionCache(tmp_path / "cache" / "versions.json")
    asked: list[tuple[str, ...]] = []

    def ask(argv: tuple[str, ...]) -> str:
        asked.append(argv)
        return f"agent 1.{len(asked)}.0"

    assert cache.output(command, None, ask) == "agent 1.1.0"
    assert cache.output(command, None, ask) == "agent 1.1.0"
    assert asked == [(sys.executable, str(agent), "--version")]
    assert cache.path.stat().st_mode & 0o777 == 0o600
    assert cache.output(command, 1000, ask) == "agent 1.2.0", "another account is another trial"
    agent.write_text("another")
    os.utime(agent, ns=(1, 1))
    assert cache.output(command, None, ask) == "agent 1.3.0"


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"a": 1}'])
def test_a_damaged_cache_is_an_empty_one(tmp_path: Path, damage: str) -> None:
    agent = executable(tmp_path / "agent", "one")
    cache = VersionCache(tmp_path / "versions.json")
    cache.path.write_text(damage)
    command = AgentCommand(argv=(str(agent),), folders=())
    assert cache.output(command, None, lambda _: "agent 2.0.0") == "agent 2.0.0"


def test_a_file_that_may_stand_for_many_programs_is_asked_each_time(tmp_path: Path) -> None:
    manager = executable(tmp_path / "manager", "#!/bin/sh\n")
    (tmp_path / "agent").symlink_to(manager)
    wrapper = executable(tmp_path / "node_modules" / ".bin" / "agent", "#!/bin/sh\n")
    cache = VersionCache(tmp_path / "versions.json")
    for program in (tmp_path / "agent", wrapper):
        command = AgentCommand(argv=(str(program),), folders=())
        answers = iter(("agent 1.0.0", "agent 2.0.0"))
        printed = [cache.output(command, None, lambda _, a=answers: next(a)) for _ in range(2)]  # type: ignore[misc]
        assert printed == ["agent 1.0.0", "agent 2.0.0"]


def test_two_names_of_one_package_are_two_agents(tmp_path: Path) -> None:
    program = executable(tmp_path / "node_modules" / "both" / "cli.js", "#!/bin/sh\n")
    cache = VersionCache(tmp_path / "versions.json")
    for name in ("one", "two"):
        (tmp_path / name).symlink_to(program)
        command = AgentCommand(argv=(str(tmp_path / name),), folders=())
        assert cache.output(command, None, lambda _, n=name: n) == name  # type: ignore[misc]


def test_a_version_is_asked_in_the_launchs_folder_and_home_without_secrets(tmp_path: Path) -> None:
    text = 'env; echo "in $PWD"; touch "$HOME/left"\n'
    agent = executable(tmp_path / "agent", f"#!/bin/sh\n{text}")
    (home := tmp_path / "home").mkdir()
    environment = {"HOME": str(home), "MANAGER_DIR": "/m", "X_API_KEY": "k", "GITHUB_TOKEN": "t"}
    printed = ask_version(
        (str(agent),), identity=None, environment=environment, cwd=str(tmp_path)
    ).splitlines()
    assert {f"HOME={home}", "MANAGER_DIR=/m", f"in {tmp_path}"} <= set(printed)
    assert not any("_KEY" in line or "_TOKEN" in line for line in printed)


def test_a_home_that_is_not_there_yet_is_not_made_by_the_question(tmp_path: Path) -> None:
    agent = executable(tmp_path / "agent", '#!/bin/sh\nmkdir -p "$HOME/.agent"; echo "$HOME"\n')
    home = tmp_path / "later"
    printed = ask_version(
        (str(agent),), identity=None, environment={"HOME": str(home)}, cwd=str(tmp_path)
    )
    assert not home.exists()
    assert not os.path.lexists(printed.strip())
