"""Pi's session files: where they are, and which of them the arguments continue.

    <folder>/<time>_<id>.jsonl    the first line is a header with the id and the folder of work

The folder is `--session-dir`, PI_CODING_AGENT_SESSION_DIR, `sessionDir` of the settings, or
`<agent folder>/sessions/--<folder of work>--`. From 0.79 only sessions of the folder of work count
in one that was chosen.
"""

from __future__ import annotations

import json
import posixpath
import re
from typing import TYPE_CHECKING, Any, Final

from amux.providers.base import NativeResume
from amux.providers.pi import arguments as argv
from amux.providers.pi.appended_text import agent_folder, settings, settings_files

if TYPE_CHECKING:
    from amux.providers.base import AgentRequest, Facts
    from amux.providers.pi.version import Release

ENDING: Final = ".jsonl"
LOOKED_AT: Final = 16
"""How many of the newest files are looked at for the one that `--continue` would take."""
VARIABLE: Final = "PI_CODING_AGENT_SESSION_DIR"


def usual_folder(request: AgentRequest) -> str:
    """Return the folder of this folder of work, where none was chosen."""
    encoded = re.sub(r"[/\\:]", "-", re.sub(r"\A[/\\]", "", request.cwd))
    return posixpath.join(agent_folder(request), "sessions", f"--{encoded}--")


def chosen_folder(request: AgentRequest, items: tuple[argv.Item, ...]) -> str | None:
    """Return the folder that the arguments or the environment choose."""
    given = argv.values(items, argv.SESSION_DIR)
    folder = given[-1] if given else request.environment.get(VARIABLE)
    return _placed(request, folder) if folder else None


def resolve(
    request: AgentRequest, items: tuple[argv.Item, ...], facts: Facts, release: Release
) -> NativeResume | tuple[str, ...] | None:
    """Find the session; paths to read first, or None where Pi begins a new one."""
    named, item = argv.native_resume(items), argv.deciding_option(items)
    if named is None or item is None or item.name == argv.RESUME:
        return named
    missing = tuple(path for path in settings_files(request) if path not in facts.files)
    if missing:
        return missing
    if item.value is not None and item.name != argv.SESSION_ID and _is_path(item.value):
        return _by_path(request, item.value, facts, fork=named.fork)
    folder, chosen = _folder(request, items, facts)
    listing = posixpath.join(folder, "")
    if listing not in facts.files:
        return (listing,)
    paths = [posixpath.join(folder, name) for name in _newest(facts.files[listing])]
    if item.value is None:
        return _latest(request, paths, facts, filtered=chosen and release.asks_trust)
    return _by_id(item, named, paths)


def _by_path(
    request: AgentRequest, value: str, facts: Facts, *, fork: bool
) -> NativeResume | tuple[str, ...] | None:
    path = _placed(request, value)
    if path not in facts.files:
        return (path,)
    header = _header(facts.files[path])
    return None if header is None else _found(path, header, fork=fork)


def _latest(
    request: AgentRequest, paths: list[str], facts: Facts, *, filtered: bool
) -> NativeResume | tuple[str, ...] | None:
    """Take the newest file that is a session, and in a chosen folder one of this folder of work."""
    for number, path in enumerate(paths[:LOOKED_AT]):
        if path not in facts.files:
            return tuple(paths[number : 1 if number == 0 else LOOKED_AT])
        header = _header(facts.files[path])
        if header is not None and not (filtered and header.get("cwd") not in {None, request.cwd}):
            return _found(path, header, fork=False)
    return None


def _by_id(item: argv.Item, named: NativeResume, paths: list[str]) -> NativeResume | None:
    """Take the session of this id, or the newest that begins so; Pi looks elsewhere by itself."""
    exact = item.name == argv.SESSION_ID  # which makes a session where there is none
    for path in paths:
        found = argv.conversation_id(posixpath.basename(path))
        if found == named.native_id or (not exact and found.startswith(named.native_id)):
            return NativeResume(native_id=found, fork=named.fork, aliases=(path,), place=path)
    return None if exact else named


def _found(path: str, header: dict[str, Any], *, fork: bool) -> NativeResume:
    native_id = str(header["id"])
    return NativeResume(native_id=native_id, fork=fork, aliases=(path,), place=path)


def _folder(request: AgentRequest, items: tuple[argv.Item, ...], facts: Facts) -> tuple[str, bool]:
    """Return the folder, and whether it was chosen."""
    folder = chosen_folder(request, items)
    for one in reversed(settings(request, items, facts)):
        named = one.get("sessionDir")
        if folder is None and isinstance(named, str) and named:
            folder = _placed(request, named)
    usual = usual_folder(request)
    return (usual, False) if folder in {None, usual} else (str(folder), True)


def _newest(listing: bytes | None) -> list[str]:
    """Return the names of session files, the newest first."""
    found = []
    for line in (listing or b"").decode("utf-8", "surrogateescape").splitlines():
        name, _, rest = line.partition("\t")
        changed = rest.rpartition("\t")[2]
        if name.endswith(ENDING) and changed.isdigit():
            found.append((int(changed), name))
    return [name for _, name in sorted(found, reverse=True)]


def _header(content: bytes | None) -> dict[str, Any] | None:
    """Return a session's header; None where the file is not a session."""
    try:
        header = json.loads((content or b"").partition(b"\n")[0])
    except ValueError:
        return None
    is_one = isinstance(header, dict) and header.get("type") == "session"
    return header if is_one and isinstance(header.get("id"), str) else None


def _is_path(value: str) -> bool:
    return "/" in value or "\\" in value or value.endswith(ENDING)


def _placed(request: AgentRequest, path: str) -> str:
    if path == "~" or path.startswith("~/"):
        return posixpath.normpath(request.home + path[1:])
    return posixpath.normpath(posixpath.join(request.cwd, path))
