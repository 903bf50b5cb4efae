from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amux.materializer.onefile import build
from fixtures.hubs import running
from tests.agentside.mcp_session import McpSession
from tests.agentside.real_hub import RealHub
from tests.agentside.scripted_hub import Documents, ScriptedHub, unix_hub
from tests.agentside.side import SYSTEM, Side, write_connection

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    write_connection(home / "connections" / "user.json", f"unix:{tmp_path}/home/hub.sock")
    return Side((SYSTEM, "-I", "-S", str(onefile)), {"AMUX_HOME": str(home)}, tmp_path)


@pytest.fixture(name="documents")
def _documents() -> Documents:
    return Documents()


@pytest.fixture(name="hub")
def _hub(home: Path, documents: Documents) -> Iterator[ScriptedHub]:
    with unix_hub(home / "hub.sock", documents) as hub:
        yield hub


@pytest.fixture(name="real_hub")
def _real_hub(tmp_path: Path) -> Iterator[RealHub]:
    with running(tmp_path / "hub") as process:
        yield RealHub(process)


@pytest.fixture(name="launch")
def _launch(real_hub: RealHub, onefile: Path, tmp_path: Path) -> Side:
    """Bind launch-1 as the materializer does, in an environment of nothing else."""
    environ = real_hub.open_launch("launch-1", tmp_path)
    return Side((SYSTEM, "-I", "-S", str(onefile)), environ, tmp_path)


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
