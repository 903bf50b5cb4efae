"""The installed agent-side command, for launches that run as the caller's own account."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from amux.launcher.errors import CommandNotUsable


def installed_command(environ_path: str) -> Path:
    """Return the absolute path of the installed `amux`.

    Looked for beside this interpreter, then on PATH. Raises CommandNotUsable naming both.
    """
    beside = Path(sys.executable).parent / "amux"
    if os.access(beside, os.X_OK):
        return beside
    import shutil  # noqa: PLC0415  # seldom needed

    found = shutil.which("amux", path=environ_path)
    if found is None:
        message = (
            f"the agent-side command was not found: neither {beside} nor `amux` on PATH "
            f"({environ_path}); install amux where the agent can run it"
        )
        raise CommandNotUsable(message)
    return Path(found).absolute()


def commands_folder(home: Path, command: Path) -> Path:
    """Return `<home>/bin`, made to hold one link `amux` to the installed command, for PATH."""
    folder = home / "bin"
    folder.mkdir(mode=0o700, exist_ok=True)
    link = folder / "amux"
    if not link.is_symlink() or link.readlink() != command:
        fresh = folder / f".amux.{os.getpid()}.{os.urandom(4).hex()}"
        fresh.symlink_to(command)
        fresh.replace(link)
    return folder
