"""What a launch imports before its agent starts: time that every launch pays."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from pathlib import Path

SELDOM = (
    "amux.hub.config",
    "amux.hub.enrolment",
    "amux.hub.identity",
    "amux.hub.local",
    "amux.hub.values",
    "httpx",
    "http.client",
    "importlib.metadata",
    "jinja2",
    "amux.launcher.supervisor",
    "amux.launcher.channel.websocket",
    "amux.materializer.identity",
    "amux.materializer.interpreter",
    "amux.materializer.onefile",
    "amux.materializer.trial",
    "pexpect",
    "psutil",
    "ssl",
    "starlette",
    "websockets",
)


def imported(statement: str) -> set[str]:
    script = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run(
        (sys.executable, "-c", script), capture_output=True, text=True, check=True, timeout=SECONDS
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("provider", ["claude", "codex", "pi"])
def test_a_launch_imports_nothing_that_only_some_launches_need(provider: str) -> None:
    modules = imported(f"import amux.launcher.cli.launch, amux.providers.{provider}")
    assert modules.isdisjoint(SELDOM), sorted(modules & set(SELDOM))


def test_the_memory_commands_import_nothing_of_the_launcher_but_their_door() -> None:
    modules = imported("import amux.launcher.command, amux.materializer.agentside.main")
    rooms = ("amux.hub", "amux.launcher", "amux.providers")
    ours = {name for name in modules if name.startswith(rooms)}
    assert ours == {"amux.launcher", "amux.launcher.command"}
    assert "click" not in modules


def interrupted(script: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-c", script),
        env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


@pytest.mark.parametrize("command", ["launch", "sessions", "memory", "hub"])
def test_ctrl_c_while_modules_load_ends_without_a_word(command: str, tmp_path: Path) -> None:
    """The interrupt comes at the import of the command's own module, whenever that is."""
    seldom = {"memory": "amux.materializer.agentside.commands"}
    module = seldom.get(command, f"amux.launcher.cli.{command}")
    script = f"""
import os, signal, sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
sys.argv = ["amux", {command!r}, "list"]
from amux.launcher.command import main
sys.exit(main())
"""
    done = interrupted(script, tmp_path)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


def test_ctrl_c_once_the_command_has_ended_changes_nothing(tmp_path: Path) -> None:
    script = """
import atexit, signal, sys
atexit.register(signal.raise_signal, signal.SIGINT)
sys.argv = ["amux", "sessions", "list"]
from amux.launcher.command import main
sys.exit(main())
"""
    done = interrupted(script, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
