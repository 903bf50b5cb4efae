"""Which appended texts a launch of Pi would have by itself.

Any `--append-system-prompt` replaces `APPEND_SYSTEM.md`: the project's where the folder is
trusted (from 0.79.0 Pi asks), else the one in the agent's folder. So its text is merged in, unless
the caller gave flags of their own, which replace it in Pi alone as well.
"""

from __future__ import annotations

import json
import posixpath
from typing import TYPE_CHECKING, Final

from amux.providers.base import MAX_FACT_BYTES, Mode
from amux.providers.errors import BadArguments, require_utf8
from amux.providers.pi import arguments as argv
from amux.providers.pi.version import Release

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from amux.providers.base import AgentRequest, Facts
NAME: Final = "APPEND_SYSTEM.md"
SEGMENT_BYTES: Final = 255


def agent_folder(request: AgentRequest) -> str:
    """Return Pi's own folder; an empty PI_CODING_AGENT_DIR counts as unset."""
    given = request.environment.get("PI_CODING_AGENT_DIR")
    if not given:
        return posixpath.join(request.home, ".pi", "agent")
    if given == "~" or given.startswith("~/"):
        return request.home + given[1:]
    return posixpath.join(request.cwd, given)


def files_to_read(request: AgentRequest, items: tuple[argv.Item, ...]) -> Iterator[str]:
    """Name the files that appended texts may come from."""
    folder = agent_folder(request)
    for value in argv.values(items, argv.APPEND):
        if _may_be_file(value):
            yield posixpath.join(request.cwd, value)
    yield posixpath.join(request.cwd, ".pi", NAME)
    yield posixpath.join(folder, NAME)
    yield from settings_files(request)
    yield posixpath.join(folder, "bin", "amux")


def texts(
    request: AgentRequest, items: tuple[argv.Item, ...], facts: Facts, release: Release
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the texts in order, and warnings."""
    own = argv.values(items, argv.APPEND)
    if own:
        return tuple(text for text in (_text(one, request, facts) for one in own) if text), ()
    project = facts.files.get(posixpath.join(request.cwd, ".pi", NAME))
    warnings: tuple[str, ...] = ()
    if project is not None:
        trusted = True if not release.asks_trust else _trusted(request, items, facts)
        if trusted:
            return (_decoded(project, NAME),), ()
        if trusted is None and request.mode is Mode.TERMINAL:
            message = (
                f"this folder's .pi/{NAME} is left out: Pi has no decision yet whether the folder "
                "is trusted; launch again after deciding"
            )
            warnings = (message,)
    user = facts.files.get(posixpath.join(agent_folder(request), NAME))
    return (() if user is None else (_decoded(user, NAME),)), warnings


def has_other_amux(request: AgentRequest, facts: Facts) -> bool:
    """Say whether Pi's own bin folder, which it puts first in PATH, holds another `amux`."""
    return facts.files.get(posixpath.join(agent_folder(request), "bin", "amux")) is not None


def _text(value: str, request: AgentRequest, facts: Facts) -> str:
    require_utf8(argv.APPEND, value)
    content = facts.files.get(posixpath.join(request.cwd, value)) if _may_be_file(value) else None
    return value if content is None else _decoded(content, value)


def _decoded(content: bytes, name: str) -> str:
    if len(content) >= MAX_FACT_BYTES:
        raise BadArguments(f"the text in {name} is 1 MiB or more, too much for a system prompt")
    return content.decode("utf-8-sig", errors="replace")


def _may_be_file(value: str) -> bool:
    """Say whether the value could name a file: a segment has at most 255 bytes."""
    return bool(value) and "\0" not in value and not cannot_be_file(value)


def cannot_be_file(value: str) -> bool:
    """Say whether no file can have this name, since a segment of it is too long for one."""
    return any(
        len(segment.encode("utf-8", "surrogateescape")) > SEGMENT_BYTES
        for segment in value.split("/")
    )


def settings_files(request: AgentRequest) -> tuple[str, ...]:
    """Name the files that settings come from, and Pi's decisions about folders."""
    folder = agent_folder(request)
    return (
        posixpath.join(folder, "settings.json"),
        posixpath.join(request.cwd, ".pi", "settings.json"),
        posixpath.join(folder, "trust.json"),
    )


def settings(
    request: AgentRequest, items: tuple[argv.Item, ...], facts: Facts
) -> tuple[Mapping[str, object], ...]:
    """Return the user's settings, and the project's where Pi loads them; the latter win."""
    user, project, _ = settings_files(request)
    found = [_json(facts.files.get(user))]
    if loads_project(request, items, facts):
        found.append(_json(facts.files.get(project)))
    return tuple(found)


def loads_project(request: AgentRequest, items: tuple[argv.Item, ...], facts: Facts) -> bool:
    """Say whether Pi loads the project's own files, or may: on its screen it can still ask."""
    if not Release.of(request.version).asks_trust:
        return True
    trusted = _trusted(request, items, facts)
    return trusted is True or (trusted is None and request.mode is Mode.TERMINAL)


def _trusted(request: AgentRequest, items: tuple[argv.Item, ...], facts: Facts) -> bool | None:
    """Return Pi's decision about the folder; None where it has none yet."""
    for item in reversed(items):
        if item.name in {argv.APPROVE, argv.NO_APPROVE}:
            return item.name == argv.APPROVE
    folder = agent_folder(request)
    decisions = _json(facts.files.get(posixpath.join(folder, "trust.json")))
    place = request.cwd
    while True:
        decision = decisions.get(place)
        if isinstance(decision, bool):
            return decision
        parent = posixpath.dirname(place)
        if parent == place:
            break
        place = parent
    settings = _json(facts.files.get(posixpath.join(folder, "settings.json")))
    return {"always": True, "never": False}.get(str(settings.get("defaultProjectTrust")))


def _json(content: bytes | None) -> Mapping[str, object]:
    if content is None:
        return {}
    try:
        loaded = json.loads(content.decode("utf-8-sig"))
    except ValueError:
        return {}
    return loaded if isinstance(loaded, dict) else {}
