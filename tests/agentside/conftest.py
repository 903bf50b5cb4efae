from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from materializer.onefile import build
from tests.agentside.mcp_session import McpSession
from tests.agentside.real_hub import RealHub
from tests.agentside.scripted_hub import Documents, ScriptedHub, unix_hub

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SYSTEM = "/usr/bin/python3"
TOKEN = "amux_" + "user_u1_" + "s" * 43


@dataclass(frozen=True, slots=True)
class Side:
    """The one file, run as an agent would run it."""

    command: tuple[str, ...]
    environ: dict[str, str]
    cwd: Path

    def run(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"text\n",
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run one command to its end."""
        return subprocess.run(
            [*self.command, *arguments],
            input=stdin,
            env={**self.environ, **(env or {})},
            cwd=self.cwd,
            capture_output=True,
            check=False,
            timeout=30,
        )

    def memory(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"text\n",
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run one memory command to its end."""
        return self.run("memory", *arguments, stdin=stdin, env=env)

    def spawn_mcp(self, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start the MCP server."""
        return subprocess.Popen(
            [*self.command, "mcp"],
            env={**self.environ, **(env or {})},
            cwd=self.cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


def error_of(done: subprocess.CompletedProcess[bytes]) -> dict[str, object]:
    """Return the error of a refused command, which must be all that it printed."""
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr
    error = json.loads(done.stderr)["error"]
    assert isinstance(error, dict)
    return error


def write_connection(path: Path, url: str, token: str = TOKEN, ca_pem: str | None = None) -> Path:
    """Write a connection file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = {"schema": 1, "url": url, "token": token}
    if ca_pem is not None:
        fields["ca_pem"] = ca_pem
    path.write_text(json.dumps(fields))
    path.chmod(0o600)
    return path


@pytest.fixture(name="onefile", scope="session")
def _onefile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("onefile") / "amux"
    file.write_bytes(build())
    file.chmod(0o555)
    return file


@pytest.fixture(name="home")
def _home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture(name="side")
def _side(onefile: Path, home: Path, tmp_path: Path) -> Side:
    write_connection(home / "connections" / "user.json", f"unix:{tmp_path}/hub.sock")
    return Side((SYSTEM, "-I", "-S", str(onefile)), {"AMUX_HOME": str(home)}, tmp_path)


@pytest.fixture(name="documents")
def _documents() -> Documents:
    return Documents()


@pytest.fixture(name="hub")
def _hub(tmp_path: Path, documents: Documents) -> Iterator[ScriptedHub]:
    with unix_hub(tmp_path / "hub.sock", documents) as hub:
        yield hub


@pytest.fixture(name="real_hub")
def _real_hub(tmp_path: Path) -> Iterator[RealHub]:
    hub = RealHub(tmp_path / "amux")
    hub.restart(memory_enabled="true")
    try:
        yield hub
    finally:
        hub.stop()


@pytest.fixture(name="real_side", params=["one file", "installed"])
def _real_side(
    request: pytest.FixtureRequest, real_hub: RealHub, onefile: Path, tmp_path: Path
) -> Side:
    commands = {
        "one file": (SYSTEM, "-I", "-S", str(onefile)),
        "installed": (str(Path(sys.executable).with_name("amux")),),
    }
    return Side(commands[request.param], real_hub.environ, tmp_path)


@pytest.fixture(name="session")
def _session(side: Side) -> Iterator[McpSession]:
    with McpSession(side.spawn_mcp()) as session:
        yield session
