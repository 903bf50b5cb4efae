"""A home under any name is served by everything, or refused at once by everything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from amux.hub.local import stop_hub
from amux.launcher.launch import launch
from amux.launcher.request import LaunchRequest
from fixtures.hosts import make_host
from fixtures.scripted_provider import install_scripted_agent, scripted_registry
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

AMUX: Final = str(Path(sys.executable).with_name("amux"))
INITIALIZE: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}


def _amux(
    environ: Mapping[str, str | bytes], *arguments: str, text: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [AMUX, *arguments],
        env=dict(environ),
        input=text,
        capture_output=True,
        check=False,
        timeout=SECONDS,
    )


@pytest.mark.parametrize("name", ["jürgen", "用户", "a b", "quote's \"", "100%$HOME", "ﬀ\u0301"])
def test_a_home_of_any_printable_name_is_used_by_hub_commands_and_agents(
    tmp_path: Path, name: str
) -> None:
    host = replace(make_host(tmp_path / name), providers=scripted_registry())
    request = LaunchRequest(
        provider="scripted",
        cwd=tmp_path,
        environment={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        executable=install_scripted_agent(tmp_path / "bin"),
        require_memory=True,
    )
    try:
        with launch(request, host):
            file = next(host.runs.glob("*/agent-config/memory/connection.json"))
            inside = {**host.environ, "AMUX_CONNECTION": str(file), "AMUX_MEMORY_BINDING": "global"}
            for environ in (host.environ, inside):
                done = _amux(environ, "memory", "show", "MEMORY.md")
                assert done.returncode == 0, done.stderr
            served = _amux(inside, "mcp", text=json.dumps(INITIALIZE).encode() + b"\n")
            assert json.loads(served.stdout)["result"]["serverInfo"]
        assert _amux(host.environ, "hub", "status").returncode == 0
    finally:
        stop_hub(host.home)


@pytest.mark.parametrize("name", [b"j\xfcrgen", b"two\nlines", b"\x1b[31m"])
def test_a_home_whose_name_no_file_could_hold_is_refused_by_everything(
    tmp_path: Path, name: bytes
) -> None:
    home = os.fsencode(tmp_path) + b"/" + name
    environ: dict[str, str | bytes] = {"PATH": os.environ["PATH"], "AMUX_HOME": home}
    for arguments, status in (
        (("hub", "serve"), 78),
        (("hub", "status"), 1),
        (("system", "config", "get"), 1),
        (("principal", "list"), 1),
        (("sessions", "list"), 1),
        (("launch", "generic", "--", "/bin/true"), 125),
        (("memory", "show", "MEMORY.md"), 4),
    ):
        done = _amux(environ, *arguments)
        said = done.stderr + done.stdout
        assert done.returncode == status, (arguments, done)
        assert b"another folder" in said, (arguments, said)
        assert b"Traceback" not in said
    assert not os.path.lexists(home)
