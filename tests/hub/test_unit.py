"""The systemd units of a home: names, quoting, whose files are touched, what is said."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from amux.hub.errors import HomeRefused
from amux.hub.unit import plan_units, unit_name
from fixtures.hubs import HubHome, new_home

if TYPE_CHECKING:
    from collections.abc import Callable

ODD: Final = "a b%i 'c' \"d\" $HOME é \\x"


@pytest.fixture
def home(tmp_path: Path) -> HubHome:
    return new_home(tmp_path / "h")


@pytest.fixture
def amux(home: HubHome) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "amux.launcher.command", "hub", "install-unit", *words],
            env=home.environ,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def folder_of(home: HubHome) -> Path:
    return Path(home.environ["HOME"]) / ".config" / "systemd" / "user"


def test_two_units_are_written_and_it_is_said_what_to_type_next(
    home: HubHome, amux: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    shown = amux("--print")
    assert not folder_of(home).exists()
    done = amux()
    assert (done.returncode, done.stderr) == (0, "")
    name = unit_name(home.home)
    assert f"systemctl --user enable --now {name}.socket" in done.stdout
    files = sorted(folder_of(home).iterdir())
    assert [file.name for file in files] == [f"{name}.service", f"{name}.socket"]
    for file in files:
        assert file.read_text(encoding="utf-8") in shown.stdout
    socket = files[1].read_text(encoding="utf-8")
    assert f"\nListenStream={home.home}/hub.sock\nSocketMode=0600\n" in socket
    assert amux().returncode == 0
    assert amux("--remove").returncode == 0
    assert list(folder_of(home).iterdir()) == []
    assert "no units" in amux("--remove").stdout


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
@pytest.mark.parametrize("suffix", ["socket", "service"])
def test_a_unit_of_somebody_elses_is_neither_overwritten_nor_removed(
    home: HubHome,
    amux: Callable[..., subprocess.CompletedProcess[str]],
    kind: str,
    suffix: str,
) -> None:
    folder = folder_of(home)
    folder.mkdir(parents=True)
    path = folder / f"{unit_name(home.home)}.{suffix}"
    match kind:
        case "file":
            path.write_text("[Unit]\nDescription=mine\n", encoding="utf-8")
        case "link":
            path.symlink_to("/dev/null")
        case _:
            path.mkdir()
    for words in ((), ("--remove",)):
        refused = amux(*words)
        assert refused.returncode == 1
        assert "was not made by amux" in refused.stderr
    assert list(folder.iterdir()) == [path]
    assert kind != "file" or path.read_text(encoding="utf-8").endswith("=mine\n")


def test_units_that_are_enabled_are_not_removed(
    home: HubHome, amux: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    amux()
    wants = folder_of(home) / "sockets.target.wants"
    wants.mkdir()
    name = unit_name(home.home)
    (wants / f"{name}.socket").symlink_to(folder_of(home) / f"{name}.socket")
    refused = amux("--remove")
    assert refused.returncode == 1
    assert f"systemctl --user disable --now {name}.socket" in refused.stderr
    assert (folder_of(home) / f"{name}.service").is_file()


def test_each_home_has_units_of_its_own(tmp_path: Path) -> None:
    assert unit_name(tmp_path / "a") != unit_name(tmp_path / "b")


def test_a_path_that_systemd_could_not_listen_at_is_refused(tmp_path: Path) -> None:
    long = Path("/") / ("h" * 120)
    with pytest.raises(HomeRefused, match="longer than 107 bytes"):
        plan_units(long, {"HOME": str(tmp_path)}, python=sys.executable)
    with pytest.raises(HomeRefused, match="neither XDG_CONFIG_HOME nor HOME"):
        plan_units(tmp_path, {"XDG_CONFIG_HOME": "relative"}, python=sys.executable)


def test_odd_characters_of_a_path_reach_systemd_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / ODD
    folder.mkdir()
    python = folder / "python"
    python.symlink_to(sys.executable)
    home = Path("/h") / ODD
    environ = {"XDG_CONFIG_HOME": str(folder), "HOME": "/x", "AMUX_RUNS": f"/r/{ODD}"}
    units = plan_units(home, environ, python=str(python))
    literal = ODD.replace("%", "%%")
    quoted = literal.replace("\\", "\\\\").replace('"', '\\"')
    assert f"\nListenStream=/h/{literal}/hub.sock\n" in units.socket_text
    assert (
        f'\nExecStart=":/bin/sh" "-c" "exec \\"$@\\"" "amux" '
        f'"{tmp_path}/{quoted}/python" "-P" "-m" "amux.hub.server"\n' in units.service_text
    )
    assert f'\nEnvironment="AMUX_HOME=/h/{quoted}" "AMUX_RUNS=/r/{quoted}"\n' in units.service_text
    usual = plan_units(home, environ, python="/opt/a b%/$x/python").service_text
    assert '\nExecStart=":/opt/a b%%/$x/python" "-P" "-m" "amux.hub.server"\n' in usual
    assert units.socket.parent == folder / "systemd" / "user"
    plain = tmp_path / "units"
    plain.mkdir()
    for path, text in units.files():
        (plain / path.name).write_text(text, encoding="utf-8")
    tool = shutil.which("systemd-analyze")
    # systemd's own reading, where it is there: it refuses a program that it does not find.
    verified = subprocess.run(
        [tool, "--user", "verify", *map(str, plain.iterdir())] if tool else ["true"],
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (verified.returncode, verified.stderr) == (0, "")
