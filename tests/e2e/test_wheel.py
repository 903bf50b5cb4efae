"""What a user installs: one package at the top, whole, typed, beside others with our rooms' names.

Everything is installed into folders of the test; nothing is on the path but what was installed.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
ROOMS = ("hub", "launcher", "materializer", "providers")
SERVICE = ROOT / "docs" / "examples" / "service.py"
PARROT = ROOT / "fixtures" / "third_party_provider"
SCRIPTED_AGENT = ROOT / "fixtures" / "scripted_agent.py"
NEIGHBOURS = ROOT / "fixtures" / "neighbours.txt"
PYRIGHT = ROOT / "fixtures" / "type-checker" / "node_modules" / "pyright" / "index.js"
OURS, HERMES, HUB = "amux-launcher", "hermes-agent", "hub"
PEOPLE = ("alice", "bob", "carol")
WRONG = 'from amux import LaunchRequest\n\nLaunchRequest(executable="/bin/cat")\n'
HOME_AND_PATH = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


@dataclass(frozen=True, slots=True)
class Installed:
    """A virtual environment of a test's own, without pip."""

    folder: Path

    @property
    def python(self) -> str:
        """Return its interpreter."""
        return str(self.folder / "bin" / "python")

    @property
    def site(self) -> Path:
        """Return where its distributions are."""
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def pip(self, *words: str) -> None:
        """Run the project's own pip for it."""
        run("-m", "pip", "-q", "--python", self.python, *words, cwd=self.folder)

    def tops(self, name: str) -> set[str]:
        """Return what a distribution has at the top, without its own metadata and scripts."""
        files = self.distribution(name).files or []
        tops = {file.parts[0] for file in files}
        return {top for top in tops if not top.endswith(".dist-info") and top != ".."}

    def distribution(self, name: str) -> Distribution:
        """Return an installed distribution."""
        (found,) = distributions(path=[str(self.site)], name=name)
        return found

    def broken(self, *names: str) -> list[str]:
        """Return every file of these distributions that is not there as it was installed."""
        return [
            f"{name}: {file}"
            for name in names
            for file in self.distribution(name).files or []
            if file.hash is not None and _digest(Path(str(file.locate()))) != file.hash.value
        ]


def _digest(file: Path) -> str:
    """Return what RECORD says of a file: SHA-256 in URL-safe base64, without padding."""
    if not file.is_file():
        return "gone"
    digest = hashlib.sha256(file.read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def ended(
    *words: str, cwd: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def run(*words: str, environment: Mapping[str, str] | None = None, cwd: Path) -> str:
    done = ended(sys.executable, *words, cwd=cwd, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(source: Path, folder: Path) -> Path:
    """Build the wheel as a release does; the source is only read."""
    run("-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=source)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build ours."""
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def neighbours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Fetch the others: their files are what matters here, so not what they depend on."""
    folder = tmp_path_factory.mktemp("neighbours")
    words = ("-m", "pip", "-q", "download", "--no-deps", "--only-binary", ":all:")
    # Their code is not run, so a Python that they do not declare will do.
    run(*words, "--ignore-requires-python", "-d", str(folder), "-r", str(NEIGHBOURS), cwd=folder)
    (hermes,), (hub,) = folder.glob("hermes_agent-*.whl"), folder.glob("hub-*.whl")
    return {HERMES: str(hermes), HUB: str(hub)}


@pytest.fixture(scope="module")
def installed(
    wheel: Path, neighbours: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    """Install ours, a third party's provider and the neighbours, with what ours depends on."""
    folder = tmp_path_factory.mktemp("installed")
    parrot = built(PARROT, tmp_path_factory.mktemp("parrot"))
    made = empty(folder / "venv")
    pins = ("--constraint", str(ROOT / "constraints.txt"))
    made.pip("install", *pins, str(wheel), str(parrot))
    made.pip(
        "install", "--no-deps", "--no-compile", "--ignore-requires-python", *neighbours.values()
    )
    return made


def empty(folder: Path) -> Installed:
    run("-m", "venv", "--without-pip", str(folder), cwd=folder.parent)
    return Installed(folder)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Copy what users write to a folder that has nothing of ours beside it."""
    folder = tmp_path / "work"
    folder.mkdir()
    shutil.copy(SERVICE, folder)
    shutil.copy(PARROT / "amux_parrot.py", folder)
    (folder / "wrong.py").write_text(WRONG, encoding="utf-8")
    return folder


def test_the_wheel_holds_every_source_of_the_rooms_below_one_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if not name.endswith("/")}
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"amux", wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info"}
    sources = {
        f"amux/{file.relative_to(ROOT)}"
        for room in ROOMS
        for file in (ROOT / room).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert sources | {"amux/__init__.py", "amux/errors.py", "amux/py.typed"} <= names


def test_what_users_write_passes_mypy_strict(installed: Installed, work: Path) -> None:
    words = ("-m", "mypy", "--strict", "--config-file=", "--python-executable", installed.python)
    run(*words, "service.py", "amux_parrot.py", cwd=work)
    done = ended(sys.executable, *words, "wrong.py", cwd=work)
    assert (done.returncode, done.stdout.count("error:")) == (1, 1), done.stdout + done.stderr
    assert '"executable" to "LaunchRequest" has incompatible type "str"' in done.stdout


def test_what_users_write_passes_pyright(installed: Installed, work: Path) -> None:
    assert PYRIGHT.exists(), "make agents installs pyright, the type checker"
    (work / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}', encoding="utf-8")
    words = ("node", str(PYRIGHT), "--pythonpath", installed.python)
    environment = HOME_AND_PATH | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = ended(*words, "service.py", "amux_parrot.py", cwd=work, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    done = ended(*words, "wrong.py", cwd=work, environment=environment)
    assert (done.returncode, done.stdout.count("error:")) == (1, 1), done.stdout + done.stderr
    assert "reportArgumentType" in done.stdout


@pytest.mark.parametrize("provider", ["generic", "parrot"])
def test_the_service_runs_three_agents_and_sees_each_of_them_end(
    provider: str, installed: Installed, work: Path, tmp_path: Path
) -> None:
    parrot = tmp_path / "parrot"
    parrot.write_text(f'#!/bin/sh\nexec {installed.python} -I {SCRIPTED_AGENT} "$@"\n')
    parrot.chmod(0o755)
    command = "cat" if provider == "generic" else str(parrot)
    words = ("-P", "-W", "error", "service.py", str(tmp_path / "people"), provider, command)
    environment = HOME_AND_PATH | {"AMUX_RUNS": str(tmp_path / "runs")}
    done = ended(installed.python, *words, cwd=work, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.splitlines()
    answers = {
        name: name if provider == "generic" else f"{{'echo': {{'from': '{name}'}}}}"
        for name in PEOPLE
    }
    assert said[:3] == [f"{name}: {answer}" for name, answer in answers.items()]
    assert sorted(said[3:]) == [f"{name}: ended with exit 0" for name in PEOPLE]


def test_each_import_is_its_own_distributions_where_names_are_alike(
    installed: Installed, tmp_path: Path
) -> None:
    assert {"providers", "tools", "plugins"} <= installed.tops(HERMES)
    assert installed.tops(HUB) == {"hub"}
    assert installed.tops(OURS) == {"amux"}
    script = (
        "import sys, amux, amux.launcher.command, amux.materializer.onefile as onefile;"
        "from importlib.util import find_spec;"
        "values = [getattr(amux, name) for name in amux.__all__]; onefile.build();"
        "ours = ('hub', 'launcher', 'materializer', 'providers');"
        "assert set(ours).isdisjoint(sys.modules), sorted(sys.modules);"
        "print(amux.__file__, find_spec('providers').origin, find_spec('hub').origin, sep='\\n')"
    )
    said = ended(installed.python, "-P", "-c", script, cwd=tmp_path, environment=HOME_AND_PATH)
    assert said.returncode == 0, said.stderr
    places = [str(installed.site / name / "__init__.py") for name in ("amux", "providers", "hub")]
    assert said.stdout.splitlines() == places


@pytest.mark.parametrize("first", [(OURS,), (HERMES, HUB)], ids=["ours first", "ours last"])
def test_no_distribution_breaks_another_in_whatever_order_they_come_and_go(
    first: tuple[str, ...], wheel: Path, neighbours: dict[str, str], tmp_path: Path
) -> None:
    wheels = {OURS: str(wheel)} | neighbours
    second = tuple(name for name in wheels if name not in first)
    made = empty(tmp_path / "venv")
    install = ("install", "--no-deps", "--no-compile", "--ignore-requires-python")
    made.pip(*install, *(wheels[name] for name in first))
    made.pip(*install, *(wheels[name] for name in second))
    assert made.broken(*wheels) == []
    made.pip("uninstall", "--yes", *first)
    assert made.broken(*second) == []
    left = {path.name for path in made.site.iterdir() if path.suffix != ".dist-info"}
    assert left == {top for name in second for top in made.tops(name)}
