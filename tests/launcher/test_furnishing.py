"""Files that a launch provides: put there once, and never over what their owner made of them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from amux.launcher.launch import launch
from amux.launcher.request import LaunchRequest
from amux.materializer.values import ProvidedFile
from fixtures.accounts import account, reachable_folder
from fixtures.isolated import isolated_host, scripted
from fixtures.scripted_provider import install_scripted_agent, scripted_registry
from fixtures.stages import AMUX
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from amux.launcher.host import Host

TARGET = ".agent/auth.json"


@pytest.fixture
def request_of(tmp_path: Path, host: Host) -> LaunchRequest:
    agent = install_scripted_agent(tmp_path / "bin")
    del host
    return LaunchRequest(
        provider="scripted",
        cwd=tmp_path,
        environment={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        executable=agent,
        private_home=tmp_path / "private",
    )


def provided(request: LaunchRequest, host: Host, source: Path, **changes: bool) -> tuple[str, ...]:
    """Launch with the file and return the report's warnings about it."""
    files = (ProvidedFile(source=source, target=TARGET, **changes),)
    scripted_host = replace(host, providers=scripted_registry())
    with launch(replace(request, provide=files), scripted_host) as run:
        return tuple(text for text in run.report.warnings if TARGET in text)


def test_a_login_that_its_agent_refreshed_outlives_the_next_launch(
    request_of: LaunchRequest, host: Host, tmp_path: Path
) -> None:
    with reachable_folder() as folder:
        source = folder / "auth.json"
        source.write_text("token 1")
        file = tmp_path / "private" / TARGET
        assert provided(request_of, host, source) == ()
        assert provided(request_of, host, source) == ()
        file.write_text("token 2, refreshed")
        (warning,) = provided(request_of, host, source)
        assert f"{file} is kept" in warning
        assert f"--provide FILE:{TARGET}:replace" in warning
        assert file.read_text() == "token 2, refreshed"
        assert provided(request_of, host, source, replace=True) == ()
        assert file.read_text() == "token 1"
        source.write_text("token 3")
        assert provided(request_of, host, source) == ()
        assert file.read_text() == "token 3"
    kept = host.home / "provided.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert list(json.loads(kept.read_text())["files"]) == [str(file)]
    assert "token" not in kept.read_text()


@pytest.mark.parametrize("content", ["", "[]", '{"schema": 2, "files": {}}', "[" * 100_000])
def test_what_amux_does_not_know_for_its_own_is_kept(
    request_of: LaunchRequest, host: Host, tmp_path: Path, content: str
) -> None:
    file = tmp_path / "private" / TARGET
    file.parent.mkdir(parents=True)
    file.write_text("of the owner")
    (host.home / "provided.json").write_text(content)
    with reachable_folder() as folder:
        source = folder / "auth.json"
        source.write_text("token 1")
        (warning,) = provided(request_of, host, source)
    assert "is kept" in warning
    assert file.read_text() == "of the owner"


@pytest.mark.root
def test_the_command_provides_and_replaces_in_an_accounts_home() -> None:
    with isolated_host() as host, account() as target, reachable_folder() as folder:
        source = folder / "auth.json"
        source.write_text("token 1")
        program = scripted(folder, "/usr/bin/python3", "")
        file = target.home / TARGET
        argv = [str(AMUX), "launch", "pi", "--user", target.name, "--principal", "ann"]
        argv += ["--executable", str(program), "--provide"]

        def launched(ending: str = "") -> tuple[str, bool]:
            done = subprocess.run(
                [*argv, f"{source}:{TARGET}{ending}"],
                env=dict(host.environ),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=SECONDS,
            )
            assert done.returncode == 0, done.stderr
            return file.read_text(), "is kept" in done.stderr

        assert launched() == ("token 1", False)
        assert file.stat().st_uid == target.uid
        file.write_text("refreshed")
        assert launched() == ("refreshed", True)
        assert launched(":replace") == ("token 1", False)
