"""Another person's home above the folder that an agent is started in, as its home is its own.

An agent that looks for instructions in each folder above finds that person's there.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amux.providers.base import AgentRequest, Facts

MARKERS: Final = (".git", ".git/")


def paths(request: AgentRequest, names: Iterable[str]) -> tuple[str, ...]:
    """Return the paths of these files and folders in that home."""
    return tuple(posixpath.join(home, name) for home in request.outer_homes[:1] for name in names)


def project_marks(request: AgentRequest) -> tuple[str, ...]:
    """Return what marks a project's root, from the folder up to below that home."""
    return tuple(posixpath.join(folder, name) for folder in _between(request) for name in MARKERS)


def is_own_project(request: AgentRequest, facts: Facts) -> bool:
    """Say whether the folder is in a project of its own, or that home in none."""
    if any(facts.files.get(path) is not None for path in project_marks(request)):
        return True
    return all(facts.files.get(path) is None for path in paths(request, MARKERS))


def present_files(request: AgentRequest, facts: Facts, names: Iterable[str]) -> tuple[str, ...]:
    """Return those of that home's files that are there and not empty."""
    return tuple(path for path in paths(request, names) if facts.files.get(path))


def warnings(files: tuple[str, ...]) -> tuple[str, ...]:
    """Say which of another's files the agent reads, where nothing prevents it."""
    if not files:
        return ()
    message = (
        "the launch has a home of its own, and its folder is in another's: the agent reads "
        f"{', '.join(files)}; start it in a folder outside that home"
    )
    return (message,)


def _between(request: AgentRequest) -> tuple[str, ...]:
    found: list[str] = []
    folder = posixpath.normpath(request.cwd)
    while request.outer_homes and folder not in (*request.outer_homes, "/"):
        found.append(folder)
        folder = posixpath.dirname(folder)
    return tuple(found)
