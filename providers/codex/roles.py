"""Custom agent roles: files that may replace the protocol in the sub-agents that use them."""

from __future__ import annotations

import tomllib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from providers.base import Facts

FILES: Final = "agents/*.toml"


def patterns(codex_home: str, cwd: str) -> tuple[str, ...]:
    """Return where Codex looks for role files: its home, and `.codex` of the folder and above."""
    folder = PurePosixPath(cwd)
    projects = (f"{place}/.codex/{FILES}" for place in (folder, *folder.parents[:-1]))
    return (f"{codex_home}/{FILES}", *projects)


def warnings(facts: Facts) -> tuple[str, ...]:
    """Return a warning for each role file that sets developer instructions of its own."""
    found: list[str] = []
    for path, content in sorted(facts.files.items()):
        place = PurePosixPath(path)
        if place.parent.name != "agents" or place.suffix != ".toml" or content is None:
            continue
        try:
            role = tomllib.loads(content.decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):
            continue  # Codex skips it too
        if role.get("developer_instructions"):
            found.append(
                f"the agent role {role.get('name') or place.stem} ({path}) has developer "
                "instructions of its own, so its sub-agents do not get the memory protocol"
            )
    return tuple(dict.fromkeys(found))
