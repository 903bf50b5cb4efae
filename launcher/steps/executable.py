"""Find the agent's command.

An npm agent is a script whose first line names Node through `env`. Both are resolved to absolute
paths, so that what was looked at is what runs, whatever PATH the agent gets.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from amux.launcher.errors import AgentNotFound
from amux.launcher.target import AgentCommand

FIRST_LINE_BYTES: Final = 256
BATCH_ENDINGS: Final = frozenset({".bat", ".cmd", ".ps1"})


def find_agent(name: str, *, search_path: str, given: Path | None = None) -> AgentCommand:
    """Find `name` on `search_path`, or take the `given` file.

    Raises AgentNotFound saying what was looked for and where.
    """
    if given is not None:
        found = str(given.absolute())
        if not os.access(found, os.X_OK) or not given.is_file():
            message = f"{found} is not an executable file; name the {name} command itself"
            raise AgentNotFound(message)
    else:
        found = shutil.which(name, path=search_path) or ""
        if not found:
            message = (
                f"no `{name}` on PATH ({search_path}); install the agent, add its folder to PATH, "
                "or name it with --executable"
            )
            raise AgentNotFound(message)
        found = os.path.abspath(found)  # noqa: PTH100  # resolve() would lose a wrapper's name
    if Path(found).suffix.lower() in BATCH_ENDINGS:
        message = f"{found} is a batch file; name the program that it starts with --executable"
        raise AgentNotFound(message)
    interpreter = _interpreter(found, search_path)
    folder = str(Path(found).parent)
    if interpreter is None:
        return AgentCommand(argv=(found,), folders=(folder,))
    folders = tuple(dict.fromkeys((folder, str(Path(interpreter[0]).parent))))
    return AgentCommand(argv=(*interpreter, found), folders=folders)


def _interpreter(found: str, search_path: str) -> tuple[str, ...] | None:
    """Return the absolute argv of the program in a script's first line; None for a binary."""
    with Path(found).open("rb") as file:
        first = file.readline(FIRST_LINE_BYTES)
    if not first.startswith(b"#!"):
        return None
    words = first[2:].decode(errors="replace").split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if word != "-S"]
        if not words:
            message = f"the first line of {found} names no interpreter"
            raise AgentNotFound(message)
        program = shutil.which(words[0], path=search_path)
        if program is None:
            message = f"{found} needs `{words[0]}`, which is not on PATH ({search_path})"
            raise AgentNotFound(message)
        return (str(Path(program).absolute()), *words[1:])
    if not words or not os.access(words[0], os.X_OK):
        message = f"the first line of {found} names an interpreter that cannot be run: {words}"
        raise AgentNotFound(message)
    return tuple(words)
