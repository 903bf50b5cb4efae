"""Providers by entry point: lazy, and one that fails breaks no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest
from click.testing import CliRunner

from amux.launcher.cli.provider import command
from amux.providers.errors import UnknownProvider
from amux.providers.generic import GenericProvider
from amux.providers.registry import BUILT_IN, GROUP, Registry

ROOT = Path(__file__).parents[2]
THIRD_PARTY = ROOT / "fixtures" / "third_party_provider"


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name=name, value=value, group=GROUP)


PIP_INSTALL = (
    *(sys.executable, "-m", "pip", "install", "--quiet"),
    *("--no-deps", "--no-index", "--no-build-isolation"),
)
GENERIC = "amux.providers.generic:GenericProvider"


def test_the_built_in_providers_are_found() -> None:
    registry = Registry()
    assert {"codex", "claude", "pi", "generic"} <= set(registry.names())
    assert isinstance(registry.load("generic"), GenericProvider)
    assert all(not row.problem for row in registry.listing())


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    code = (
        "import sys; from amux.providers.registry import Registry; Registry().names();"
        "print([m for m in sys.modules if m.startswith('providers.') and m.split('.')[1]"
        " not in ('base', 'ending', 'errors', 'registry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_provider_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UnknownProvider, match="installed: generic"):
        Registry([point("generic", GENERIC)]).load("nothing")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("no_such_module:Provider", "ModuleNotFoundError"),
        ("amux.providers.generic:NoSuchClass", "AttributeError"),
        ("json:loads", "is not a class"),
        ("amux.providers.base:Provider", "declares no name"),
        ("tests.launcher.bad_plugins:Exits", "SystemExit"),
        ("tests.launcher.bad_plugins:Named", "calls itself 'other'"),
        ("tests.launcher.bad_plugins:Raises", "cannot be made: RuntimeError"),
        ("tests.launcher.bad_plugins:Abstract", "cannot be made: TypeError"),
    ],
)
def test_a_broken_plugin_is_reported_and_breaks_no_other(value: str, expected: str) -> None:
    registry = Registry([point("broken", value), point("generic", GENERIC)])
    with pytest.raises(UnknownProvider, match=expected):
        registry.load("broken")
    rows = {row.name: row for row in registry.listing()}
    assert expected in rows["broken"].problem
    assert rows["broken"].capabilities is None
    assert rows["generic"].problem == ""
    assert registry.load("generic").name == "generic"


def test_a_name_that_two_claim_belongs_to_neither() -> None:
    registry = Registry(
        [
            point("twice", "one.package:Provider"),
            point("twice", "other.package:Provider"),
            point("generic", GENERIC),
        ]
    )
    with pytest.raises(UnknownProvider, match="claimed by"):
        registry.load("twice")
    assert [row.name for row in registry.listing() if row.problem] == ["twice", "twice"]
    assert registry.load("generic").name == "generic"


def test_the_list_is_printed_for_people_and_as_json() -> None:
    runner = CliRunner()
    assert "generic" in runner.invoke(command, ["list"]).output
    rows = json.loads(runner.invoke(command, ["list", "--json"]).output)["providers"]
    generic = next(row for row in rows if row["name"] == "generic")
    assert generic["memory"] is False
    assert "memory protocol" in generic["missing"]


@pytest.fixture(scope="module")
def plugin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the third-party distribution, as pip would, into a folder of its own."""
    folder = tmp_path_factory.mktemp("plugins")
    subprocess.run(
        [*PIP_INSTALL, "--target", str(folder), str(THIRD_PARTY)],
        check=True,
        capture_output=True,
    )
    return folder


USE_IT = """
import json, os, sys
from pathlib import Path
from amux.launcher.supervisor import LaunchRequest, Supervisor
with Supervisor(Path(sys.argv[1])) as supervisor:
    session = supervisor.launch(LaunchRequest(
        provider="parrot", executable=Path(sys.argv[2]), environment=dict(os.environ)))
    session.send({"hello": "parrot"})
    print(json.dumps([session.report.as_json(), session.receive(deadline=120), session.pid]))
"""


def test_a_third_partys_distribution_is_installed_and_launches_its_agent(
    plugin_folder: Path, tmp_path: Path
) -> None:
    parrot = tmp_path / "parrot"
    script = ROOT / "fixtures" / "scripted_agent.py"
    parrot.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {script} "$@"\n', encoding="utf-8")
    parrot.chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": f"{plugin_folder}:{ROOT}",
        "AMUX_RUNS": str(tmp_path / "runs"),
    }
    done = subprocess.run(
        [sys.executable, "-c", USE_IT, str(tmp_path / "home"), str(parrot)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report, echo, pid = json.loads(done.stdout)
    assert report["provider"] == "parrot"
    assert report["agent_version"] == "1.2.3"
    assert report["missing"] == ["memory protocol"]
    assert report["native_id"] == str(pid)
    assert echo == {"echo": {"hello": "parrot"}}


def test_the_built_in_names_are_amuxs_own_entry_points() -> None:
    own = entry_points(group=GROUP)
    ours = [one for one in own if one.dist and one.dist.name == "amux-launcher"]
    assert {one.name: one.value for one in ours} == {
        name: ":".join(place) for name, place in BUILT_IN.items()
    }
    for name in BUILT_IN:
        assert Registry().load(name).name == name
