"""The agent-side command as a private copy for another UNIX user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amux.materializer import interpreter, onefile
from amux.materializer.values import PlannedFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amux.launcher.host import Host
    from amux.materializer.values import Identity, RunPaths


def own_copy(
    identity: Identity, environment: Mapping[str, str], host: Host, paths: RunPaths
) -> PlannedFile:
    """Return the command as one file; its first line names an interpreter that the target can run.

    Raises InterpreterNotFound naming what was tried.
    """
    packed = onefile.build()
    found = interpreter.find(
        paths.run.parent,
        packed,
        identity=identity,
        environment=environment,
        cache=host.home / "cache" / "interpreters.json",
    )
    content = interpreter.with_first_line(packed, found)
    return PlannedFile(name="amux", content=content, executable=True)
