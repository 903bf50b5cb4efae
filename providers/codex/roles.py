"""Custom agent roles: files that may replace the protocol in the sub-agents that use them."""

from __future__ import annotations

import contextlib
import tomllib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from amux.providers.codex.version import HOLDS_ROLES
from amux.providers.errors import UnsupportedVersion
from amux.providers.release import number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.providers.base import Facts

FILES: Final = "agents/*.toml"
ALIAS: Final = "memory_tool"


def files_to_read(codex_home: str, cwd: str) -> tuple[str, ...]:
    """Return where Codex looks for role files: its home, and `.codex` of the folder and above."""
    folder = PurePosixPath(cwd)
    projects = (f"{place}/.codex/{FILES}" for place in (folder, *folder.parents[:-1]))
    return (f"{codex_home}/{FILES}", *projects)


def warnings(facts: Facts) -> tuple[str, ...]:
    """Return a warning for each role file that sets developer instructions of its own."""
    return tuple(
        dict.fromkeys(
            f"the agent role {name} ({path}) has developer instructions of its own, so its "
            "sub-agents do not get the memory protocol"
            for path, name, role in _roles(facts)
            if role.get("developer_instructions")
        )
    )


def refuse_native_memory(facts: Facts, version: str) -> None:
    """Refuse a role that would give its sub-agents native memory in this version.

    Before 0.149.0 the old name of the feature in a role's file beats every flag of the launch, in
    its sub-agents only; later versions were seen to keep it off. Raises UnsupportedVersion.
    """
    if number(version) >= HOLDS_ROLES:
        return
    for path, name, role in _roles(facts):
        features = role.get("features")
        if isinstance(features, dict) and features.get(ALIAS, False) is not False:
            raise UnsupportedVersion(
                f"the agent role {name} ({path}) sets features.{ALIAS}, which gives its sub-agents "
                f"native memory in Codex {version} whatever amux passes; remove it there, or "
                "install Codex 0.149.0 or newer"
            )


def unread_warnings(version: str, cwd: object, launched_in: str) -> tuple[str, ...]:
    """Warn of a thread in a folder whose roles were not read: one could give it memory."""
    if number(version) >= HOLDS_ROLES or not isinstance(cwd, str) or cwd == launched_in:
        return ()
    sentence = (
        f"the agent roles of {cwd} were not read: one that sets features.{ALIAS} gives its "
        f"sub-agents native memory in Codex {version}; launch there, or install Codex 0.149.0 or "
        "newer"
    )
    return (sentence,)


def _roles(facts: Facts) -> Iterator[tuple[PurePosixPath, str, dict[str, Any]]]:
    """Yield path, name and content of each role file; Codex skips what is not TOML too."""
    for pattern, content in sorted(facts.files.items()):
        if content is None or not pattern.endswith(f"/{FILES}"):
            continue
        parts = content.decode(errors="replace").split("\0")
        for file, text in zip(parts[::2], parts[1::2], strict=False):
            path = PurePosixPath(pattern).with_name(file)
            with contextlib.suppress(tomllib.TOMLDecodeError):
                role = tomllib.loads(text)
                yield path, str(role.get("name") or path.stem), role
