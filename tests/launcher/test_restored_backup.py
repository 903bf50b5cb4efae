"""Every documented backup, restored into an empty home and into a used one: files and agents."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from amux.hub.client import HubClient
from amux.hub.config import set_setting
from amux.hub.connection import connection_path, load_connection
from amux.hub.errors import Unauthenticated
from amux.hub.local import ensure_running, stop_hub
from amux.hub.values import GetRequest, UpsertRequest
from amux.launcher.launch import launch
from amux.launcher.request import LaunchRequest
from fixtures.hosts import make_host, user_client
from fixtures.hubs import new_home
from fixtures.scripted_provider import install_scripted_agent, scripted_registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.launcher.host import Host

AMUX: Final = str(Path(sys.executable).with_name("amux"))
WHOLE: Final = ("memory", "identity", "config.toml")
TOOLS: Final = {
    "cp -a": "cp -a {names} {target}",
    "cp -r": "umask 022; cp -r {names} {target}",
    "tar": "tar -c {names} | tar -x -C {target}",
}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = make_host(tmp_path / "first", isolation="principal")
    yield replace(made, providers=scripted_registry())
    stop_hub(made.home)


@pytest.fixture(params=["empty", "used"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    """Give a home that was never used, or one that was: with a Hub, a document and a Principal."""
    made = replace(make_host(tmp_path / "second"), providers=scripted_registry())
    if request.param == "used":
        ensure_running(made.home, made.environ)
        with user_client(made) as user:
            user.upsert(UpsertRequest(path="old.md", content="x\n", expected_revision="absent"))
        stop_hub(made.home)
    else:
        shutil.rmtree(made.home)
        made.home.mkdir(mode=0o700)
    yield made
    stop_hub(made.home)


def _ask(tmp_path: Path) -> LaunchRequest:
    return LaunchRequest(
        provider="scripted",
        cwd=tmp_path,
        environment={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        executable=install_scripted_agent(tmp_path / "bin"),
        require_memory=True,
    )


def _fill(host: Host) -> None:
    ensure_running(host.home, host.environ)
    with user_client(host) as user:
        user.upsert(UpsertRequest(path="plan.md", content="precious\n", expected_revision="absent"))


def _copy(source: Path, target: Path, names: tuple[str, ...], tool: str) -> None:
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = TOOLS[tool].format(names=" ".join(names), target=target)
    subprocess.run(["/bin/sh", "-ec", command], cwd=source, check=True)


def _restore(backup: Path, target: Host, names: tuple[str, ...], tool: str) -> None:
    for name in names:
        shutil.rmtree(target.home / name, ignore_errors=True)
    _copy(backup, target.home, names, tool)


def _read(host: Host) -> str:
    done = subprocess.run(
        [AMUX, "memory", "show", "plan.md"],
        env=dict(host.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["text"])


@pytest.mark.parametrize("tool", list(TOOLS))
def test_a_whole_backup_gives_the_owner_and_an_agent_the_memory_back(
    host: Host, target: Host, tmp_path: Path, tool: str
) -> None:
    _fill(host)
    with launch(_ask(tmp_path), host):
        _copy(host.home, tmp_path / "backup", WHOLE, tool)  # while the Hub and an agent run
    _restore(tmp_path / "backup", target, WHOLE, tool)
    with launch(_ask(tmp_path), target) as run:
        assert run.report.binding == f"principal:{run.report.principal}"
        file = next(target.runs.glob("*/agent-config/memory/connection.json"))
        with HubClient.from_file(file, binding=run.report.binding) as agent:
            assert agent.get(GetRequest(path="plan.md")).text == "precious\n"
    assert _read(target) == "precious\n"
    stop_hub(target.home)
    ensure_running(target.home, target.environ)
    assert _read(target) == "precious\n"


def test_the_documents_alone_can_be_restored(host: Host, target: Host, tmp_path: Path) -> None:
    _fill(host)
    _copy(host.home, tmp_path / "backup", ("memory",), "cp -a")
    _restore(tmp_path / "backup", target, ("memory",), "cp -a")
    set_setting(target.home, "memory.enabled", "true")
    set_setting(target.home, "memory.isolation", "principal")
    with launch(_ask(tmp_path), target):
        assert _read(target) == "precious\n"


def test_identity_restored_under_a_running_hub_heals_at_the_first_call(
    host: Host, tmp_path: Path
) -> None:
    _fill(host)
    other = new_home(tmp_path / "other")
    shutil.rmtree(host.home / "identity")
    shutil.copytree(other.home / "identity", host.home / "identity")
    assert _read(host) == "precious\n"
    with launch(_ask(tmp_path), host) as run:
        assert run.report.binding == f"principal:{run.report.principal}"


def test_lost_connection_files_are_made_anew_and_a_revoked_credential_stays_revoked(
    host: Host,
) -> None:
    _fill(host)
    path = connection_path(host.home, "user")
    old = load_connection(path)
    revoked = old.token.split("_")[2]
    subprocess.run([AMUX, "credential", "revoke", revoked], env=dict(host.environ), check=True)
    assert _read(host) == "precious\n"
    assert load_connection(path).token != old.token
    with HubClient(old) as before, pytest.raises(Unauthenticated):
        before.health()
    for file in path.parent.glob("*.json"):
        file.unlink()
    stop_hub(host.home)
    ensure_running(host.home, host.environ)
    assert _read(host) == "precious\n"
