"""Which conversation Codex's own arguments go on with where they do not name it by its id.

`--last` is the one that was changed last among those of the folder; a name stands in Codex's index
of sessions, where the last line of a name counts.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from amux.providers.base import NativeResume
from amux.providers.codex.effective_config import value_at

if TYPE_CHECKING:
    from amux.providers.base import AgentRequest, Facts, JsonObject
    from amux.providers.codex.arguments import CallerArguments

IDENTIFIER: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LEVELS: Final = 3
"""`sessions/YEAR/MONTH/DAY/`."""
HEADS: Final = 16
"""How many conversations are looked into at once, the latest first."""
INTERACTIVE: Final = frozenset({"cli", "vscode"})
ALL_SOURCES: Final = "--include-non-interactive"


def resolve(
    caller: CallerArguments, named: NativeResume, facts: Facts, *, home: str, request: AgentRequest
) -> NativeResume | tuple[str, ...] | None:
    """Return the conversation, or the files to read first; None where Codex begins a new one."""
    if caller.last:
        return _last(caller, named, facts, home=home, cwd=request.cwd)
    if not named.native_id or IDENTIFIER.fullmatch(named.native_id.lower()):
        return named
    index = f"{home}/session_index.jsonl"
    if index not in facts.files:
        return (index,)
    found = named
    for entry in _objects(facts.files[index] or b""):
        if entry.get("thread_name") == named.native_id and isinstance(entry.get("id"), str):
            found = NativeResume(native_id=str(entry["id"]), fork=named.fork)
    return found


def _last(
    caller: CallerArguments, named: NativeResume, facts: Facts, *, home: str, cwd: str
) -> NativeResume | tuple[str, ...] | None:
    folders = [f"{home}/sessions/"]
    for _ in range(LEVELS):
        unread = tuple(one for one in folders if one not in facts.files)
        if unread:
            return unread
        folders = [f"{one}{name}/" for one in folders for name, _ in _listed(facts, one)]
    unread = tuple(one for one in folders if one not in facts.files)
    if unread:
        return unread
    rollouts = sorted(
        ((changed, f"{one}{name}") for one in folders for name, changed in _listed(facts, one)),
        reverse=True,
    )
    paths = [path for _, path in rollouts if path.endswith(".jsonl")]
    for place in range(0, len(paths), HEADS):
        batch = tuple(paths[place : place + HEADS])
        if batch[0] not in facts.files:
            return batch
        for path in batch:
            meta = _meta(facts.files[path] or b"")
            if _is_picked(caller, meta, cwd):
                return NativeResume(native_id=str(meta["id"]), fork=named.fork)
    return None


def _is_picked(caller: CallerArguments, meta: JsonObject, cwd: str) -> bool:
    """Say whether Codex would pick it: of this folder, no sub-agent's; for a screen, a person's."""
    source = meta.get("source")
    if not isinstance(meta.get("id"), str) or not isinstance(source, str):
        return False
    if not caller.has("--all") and meta.get("cwd") != cwd:
        return False
    return caller.executes or caller.has(ALL_SOURCES) or source in INTERACTIVE


def _listed(facts: Facts, folder: str) -> list[tuple[str, int]]:
    """Return name and time of change of each entry of a folder that was read."""
    found = []
    for line in (facts.files.get(folder) or b"").decode(errors="replace").splitlines():
        name, _, changed = (*line.rsplit("\t", 2), "", "")[:3]
        if changed.isdigit():
            found.append((name, int(changed)))
    return found


def _meta(content: bytes) -> JsonObject:
    for entry in _objects(content):
        payload = value_at(entry, "payload")
        if entry.get("type") == "session_meta" and isinstance(payload, dict):
            return payload
        break
    return {}


def _objects(content: bytes) -> list[JsonObject]:
    found = []
    for line in content.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            found.append(entry)
    return found
