"""`make` sets up with a Python that can, or says which one it needs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fixtures.waiting import SECONDS

MAKE = shutil.which("make") or "make"


def setup(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `make setup` in a fresh checkout's place, with the commands of `folder` alone."""
    checkout = folder / "checkout"
    checkout.mkdir()
    for name in ("Makefile", "constraints.txt"):
        shutil.copy(Path(__file__).parents[2] / name, checkout)
    (checkout / "pyproject.toml").touch()
    return subprocess.run(
        (MAKE, "-C", str(checkout), *words, "setup"),
        env={"PATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def python(folder: Path, name: str, *, status: int) -> None:
    """Write an interpreter whose every answer is `status`."""
    (folder / name).write_text(f"#!/bin/sh\nexit {status}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize("good", ["python3.12", "python3.14", "python3"])
def test_the_first_python_that_is_new_enough_makes_the_environment(
    tmp_path: Path, good: str
) -> None:
    python(tmp_path, "python3.11", status=1)
    python(tmp_path, good, status=0)
    assert f"\n{good} -m venv .venv\n" in setup(tmp_path, "-n").stdout


def test_without_a_python_that_is_new_enough_it_says_which_one_to_install(tmp_path: Path) -> None:
    python(tmp_path, "python3", status=1)
    done = setup(tmp_path)
    assert done.returncode == 2
    assert "amux needs Python 3.11 or newer with its venv module" in done.stderr
    assert "PYTHON=" in done.stderr
