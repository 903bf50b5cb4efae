"""Run a command in the foreground as `amux launch` does: terminal_driver STDIO UID COMMAND…."""

from __future__ import annotations

import os
import secrets
import sys

from amux.launcher.foreground import Foreground
from amux.launcher.process.pty_relay import window_size
from amux.launcher.process.spawn import SpawnRequest, Stdio, spawn
from amux.materializer.values import Identity


def main() -> int:
    """Return the agent's status as a shell would."""
    stdio, uid, *command = sys.argv[1:]
    identity = None
    if int(uid):
        identity = Identity(
            user="target", uid=int(uid), gid=int(uid), groups=(int(uid),), home="/", shell=""
        )
    rows, columns = window_size()
    with Foreground() as place:
        process = spawn(
            SpawnRequest(
                argv=tuple(command),
                environment={"PATH": os.environ["PATH"], "PS1": "agent> ", "TERM": "dumb"},
                cwd="/",
                marker=secrets.token_hex(16),
                stdio=Stdio(stdio),
                identity=identity,
                rows=rows,
                columns=columns,
                stderr_copy=2 if stdio == Stdio.PIPES else None,
            )
        )
        status = place.serve(process)
    process.close()
    return status.shell


if __name__ == "__main__":
    sys.exit(main())
