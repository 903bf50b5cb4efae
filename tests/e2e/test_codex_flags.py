"""A Codex that does not know every flag of amux's: it gets those that it knows, or is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from amux.launcher.errors import AgentFailed
from amux.launcher.launch import launch
from amux.launcher.probe.model import ScriptedModel
from amux.launcher.probe.talk import take_turn
from amux.launcher.request import LaunchRequest
from amux.providers.base import Mode
from amux.providers.codex import flags
from amux.providers.errors import UnsupportedVersion
from fixtures.codex import MEMORY_ON, SUMMARY, make_home, native, say_ok
from fixtures.pinned import CODEX_VERSIONS
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from amux.launcher.host import Host
    from fixtures.codex import CodexHome

pytestmark = [pytest.mark.agents, pytest.mark.parametrize("version", CODEX_VERSIONS)]

TABLE = "invalid type: map, expected a boolean\nin `features`"
"""What 0.121 to 0.128 end with."""
KEY = "data did not match any variant of untagged enum FeatureToml\nin `features.code_mode`"
"""What 0.141 ends with."""


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(say_ok) as scripted:
        yield scripted


@pytest.fixture
def home(tmp_path: Path, version: str, model: ScriptedModel) -> CodexHome:
    made = make_home(tmp_path / "home", version, model.url)
    made.trust()
    made.configure(MEMORY_ON)
    made.remember()
    return made


def unknowing(home: CodexHome, key: str, said: str) -> Path:
    """Write a Codex that ends of one key as an older version does, and is the real one else."""
    path = home.folder / "codex"
    error = f"Error: error loading default config after config error: {said}"
    path.write_text(
        f'#!/bin/sh\nfor word; do case "$word" in {key}=*) echo "$word" >>{home.folder}/tried\n'
        f"cat >&2 <<'END'\n{error}\n\nEND\nexit 1;; esac; done\n"
        f'exec {native(home.version)} "$@"\n'
    )
    path.chmod(0o755)
    return path


def wanted(home: CodexHome, executable: Path, mode: Mode, *arguments: str) -> LaunchRequest:
    return LaunchRequest(
        provider="codex",
        cwd=home.cwd,
        environment=dict(home.environment),
        executable=executable,
        mode=mode,
        arguments=arguments,
    )


@pytest.mark.parametrize("said", [TABLE, KEY], ids=["table", "key"])
def test_a_codex_that_does_not_know_the_list_of_namespaces_is_launched_without_it(
    host: Host, home: CodexHome, model: ScriptedModel, said: str
) -> None:
    older = unknowing(home, flags.DIRECT_NAMESPACES, said)
    with launch(wanted(home, older, Mode.STREAM), host) as run:
        take_turn("codex", run.channel, "hello", native_id=run.report.native_id)
    exec_words = ("exec", "--skip-git-repo-check", "hello")
    with launch(wanted(home, older, Mode.PASSTHROUGH, *exec_words), host) as again:
        ended = again.wait(SECONDS)
        assert ended is not None
        assert ended.code == 0
    assert len(model.turns) == 2
    for turn, report in zip(model.turns, (run.report, again.report), strict=True):
        body = json.dumps(turn.body)
        assert SUMMARY not in body
        assert turn.tool("memory_search") is not None
        observed = {one.control: one.observed for one in report.controls}
        assert observed["feature memories"] == "disabled"
    # One question in each launch, and no second start with what it did not know.
    assert len((home.folder / "tried").read_text().splitlines()) == 2


def test_a_codex_that_ends_of_a_flag_that_memory_needs_is_refused_with_that_flag(
    host: Host, home: CodexHome, model: ScriptedModel
) -> None:
    said = "invalid type: boolean `true`, expected a string\nin `mcp_servers.amux.required`"
    older = unknowing(home, "mcp_servers.amux.required", said)
    for mode, words in ((Mode.STREAM, ()), (Mode.PASSTHROUGH, ("exec", "hello"))):
        with pytest.raises(UnsupportedVersion, match=r"`-c mcp_servers\.amux\.required=…`"):
            launch(wanted(home, older, mode, *words), host)
    assert model.turns == []


@pytest.mark.parametrize("key", ["model_verbosity", "mcp_servers.amux.startup_timeout_sec"])
def test_a_flag_of_the_callers_own_is_not_called_amuxs(
    host: Host, home: CodexHome, key: str
) -> None:
    theirs = wanted(home, native(home.version), Mode.STREAM, "-c", f"{key}=[]")
    with pytest.raises(AgentFailed, match=f"in `{key}`"):
        launch(theirs, host)
