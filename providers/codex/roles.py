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
    for pattern, content in sorted(facts.files.items()):
        if content is None or not pattern.endswith(f"/{FILES}"):
            continue
        parts = content.decode(errors="replace").split("\0")
        for name, text in zip(parts[::2], parts[1::2], strict=False):
            path = PurePosixPath(pattern).with_name(name)
            found += _warning(path, text)
    return tuple(dict.fromkeys(found))


def _warning(path: PurePosixPath, text: str) -> list[str]:
    try:
        role = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return []  # Codex skips it too
    if not role.get("developer_instructions"):
        return []
    warning = (
        f"the agent role {role.get('name') or path.stem} ({path}) has developer instructions of "
        "its own, so its sub-agents do not get the memory protocol"
    )
    return [warning]
