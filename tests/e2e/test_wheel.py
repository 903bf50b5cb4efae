"""What a user installs: one package at the top, whole, and beside others with our rooms' names."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
ROOMS = ("hub", "launcher", "materializer", "providers")


def run(*words: str, environment: Mapping[str, str] | None = None, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        (sys.executable, *words),
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel as a release does."""
    folder = tmp_path_factory.mktemp("wheel")
    run("-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    (built,) = folder.glob("*.whl")
    return built


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


def test_an_installed_amux_runs_beside_packages_that_have_its_rooms_names(
    wheel: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    run("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(site), str(wheel))
    for room in ROOMS:
        (site / room).mkdir()
        (site / room / "__init__.py").write_text("raise RuntimeError('a stranger was imported')\n")
    script = (
        "import amux, amux.launcher.command, amux.materializer.onefile as onefile;"
        "amux.Supervisor; onefile.build(); print(amux.__file__)"
    )
    environment = {"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin"}
    assert run("-P", "-c", script, environment=environment, cwd=tmp_path).strip() == str(
        site / "amux" / "__init__.py"
    )


def test_every_public_name_is_there_and_no_other() -> None:
    script = (
        "import amux; values = [getattr(amux, name) for name in amux.__all__];"
        "print(len(values), hasattr(amux, 'Nothing'))"
    )
    count, other = run("-P", "-c", script).split()
    assert int(count) > 1
    assert other == "False"
