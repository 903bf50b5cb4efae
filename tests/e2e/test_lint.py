"""`make lint` holds where an extra is not installed, and pre-commit runs just that."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXTRA = "claude_agent_sdk"


def test_the_types_hold_in_an_environment_without_the_extra(tmp_path: Path) -> None:
    lacking = tmp_path / "venv"
    subprocess.run(
        (sys.executable, "-m", "venv", "--without-pip", str(lacking)), check=True, timeout=60
    )
    (site,) = lacking.glob("lib/python*/site-packages")
    for found in Path(sysconfig.get_path("purelib")).iterdir():
        if not found.name.startswith(EXTRA):
            (site / found.name).symlink_to(found)
    python = str(lacking / "bin" / "python")
    lacks = subprocess.run((python, "-c", f"import {EXTRA}"), check=False, capture_output=True)
    assert b"ModuleNotFoundError" in lacks.stderr
    words = ("--python-executable", python, "--cache-dir", str(tmp_path / "cache"))
    done = subprocess.run(
        (sys.executable, "-m", "mypy", *words, "-p", "amux.providers.claude_sdk"),
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_pre_commit_runs_what_make_lint_runs_and_nothing_else() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    entries = [line.split(":", 1)[1].strip() for line in hooks.splitlines() if "entry:" in line]
    assert entries == ["make lint"]
