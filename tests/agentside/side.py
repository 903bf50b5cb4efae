"""The one file as an agent runs it, and the connection file that it finds."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

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
        within: float = SECONDS,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run one command to its end."""
        return subprocess.run(
            [*self.command, *arguments],
            input=stdin,
            env={**self.environ, **(env or {})},
            cwd=self.cwd,
            capture_output=True,
            check=False,
            timeout=within,
        )

    def memory(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"text\n",
        env: Mapping[str, str] | None = None,
        within: float = SECONDS,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run one memory command to its end."""
        return self.run("memory", *arguments, stdin=stdin, env=env, within=within)

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
