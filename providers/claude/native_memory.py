"""Claude's own memory, which a launch with amux's neither reads nor changes."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Any

from amux.providers.claude import settings_sources
from amux.providers.claude.conversation import user_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from amux.providers.base import AgentRequest, Facts


def folders(request: AgentRequest) -> tuple[str, ...]:
    """Return the folders in which Claude keeps memory for this folder and those above it."""
    projects = posixpath.join(user_folder(request), "projects")
    slugs = (
        re.sub(r"[^A-Za-z0-9]", "-", folder) for folder in settings_sources.parent_folders(request)
    )
    return tuple(posixpath.join(projects, slug, "memory", "") for slug in slugs)


def chosen_folder(
    request: AgentRequest, facts: Facts, layers: Iterable[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Return the folder that settings choose for memory, if any do."""
    every = (*(layer.values for layer in settings_sources.layers(request, facts)), *layers)
    named = [one["autoMemoryDirectory"] for one in every if one.get("autoMemoryDirectory")]
    if not named or not isinstance(named[-1], str):
        return ()
    folder = re.sub(r"\A~(?=/)", request.home, named[-1])
    return (posixpath.join(folder, ""),) if posixpath.isabs(folder) else ()


def unread_notice(
    request: AgentRequest, facts: Facts, layers: tuple[Mapping[str, Any], ...]
) -> tuple[str, ...]:
    """Say how many files of Claude's own memory a new conversation does not read."""
    for folder in (*chosen_folder(request, facts, layers), *folders(request)):
        lines = (facts.files.get(folder) or b"").splitlines()
        count = sum(line.partition(b"\t")[0].endswith(b".md") for line in lines)
        if count:
            files = "1 file of it is" if count == 1 else f"{count} files of it are"
            said = f"{files} not read in this conversation and left alone"
            return (f"Claude's own memory is off: {said}, in {folder.rstrip('/')}",)
    return ()
