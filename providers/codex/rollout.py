"""What a rollout shows: Codex writes there the developer items that it sent to the model.

A rollout is JSON lines. `response_item` of the role `developer` joins the history; `compacted`
replaces it. The first `session_meta` says whose conversation the file is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from amux.providers.base import NATIVE_MEMORY, PROTOCOL, Sighting
from amux.providers.codex.effective_config import objects, value_at

if TYPE_CHECKING:
    from amux.providers.base import JsonObject, TranscriptPart

SOURCE: Final = "rollout, developer items"
WITHOUT_AMUX: Final = f"{SOURCE}, written without amux"
NATIVE: Final = ("MEMORY_SUMMARY BEGINS", "<oai-mem-citation>")
"""Each block of native memory holds one of them, in every version from 0.121.0 to 0.171.0."""
TURN_BEGINS: Final = frozenset({"task_started", "turn_started"})
TURN_ENDS: Final = frozenset({"task_complete", "turn_complete", "turn_aborted"})
UUID_DIGITS: Final = 32
UUID_VERSION: Final = 12
"""Where the version stands; the time is in front of it."""
SPAWNED: Final = "source.subagent.thread_spawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One part of a rollout, read.

    `texts` are the developer texts that are in effect at its end; `whole` says that they are all of
    them, because the part holds the file's beginning or a compaction. `native` says whether native
    memory was ever among them. `meta` is the first `session_meta`, empty where there is none.
    """

    meta: JsonObject
    texts: tuple[str, ...]
    whole: bool
    compacted: bool
    native: bool
    turns: int


def read(content: bytes, *, from_start: bool) -> Rollout:
    """Read whole lines; a line that is not a rollout's is skipped."""
    reader = _Reader(whole=from_start)
    for line in content.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and isinstance(entry.get("payload"), dict):
            reader.take(str(entry.get("type")), entry["payload"])
    return reader.rollout()


class _Reader:
    """The state of a conversation along its lines."""

    def __init__(self, *, whole: bool) -> None:
        self._meta: JsonObject = {}
        self._texts: list[str] = []
        self._whole = whole
        self._compacted = False
        self._native = False
        self._turns = 0
        self._begun: list[int] = []

    def take(self, kind: str, payload: JsonObject) -> None:
        """Take one line."""
        if kind == "session_meta":
            self._meta = self._meta or payload
        elif kind == "response_item":
            self._add(payload)
        elif kind == "compacted":
            self._texts, self._begun = [], []
            self._whole = self._compacted = True
            for item in objects(payload.get("replacement_history")):
                self._add(item)
        elif kind == "event_msg":
            self._event(str(payload.get("type")), payload)

    def _event(self, name: str, payload: JsonObject) -> None:
        if name in TURN_BEGINS:
            self._begun.append(len(self._texts))
        elif name in TURN_ENDS:
            self._turns += 1
        elif name == "thread_rolled_back":
            count = payload.get("num_turns")
            for _ in range(min(count if isinstance(count, int) else 0, len(self._begun))):
                del self._texts[self._begun.pop() :]

    def _add(self, item: JsonObject) -> None:
        if item.get("role") != "developer":
            return
        for piece in objects(item.get("content")):
            text = str(piece.get("text") or "")
            self._texts.append(text)
            self._native = self._native or any(sign in text for sign in NATIVE)

    def rollout(self) -> Rollout:
        """Return what was read."""
        return Rollout(
            meta=self._meta,
            texts=tuple(self._texts),
            whole=self._whole,
            compacted=self._compacted,
            native=self._native,
            turns=self._turns,
        )


def read_part(part: TranscriptPart) -> tuple[Sighting, ...]:
    """Return what the part shows of native memory and the protocol; nothing of others' files."""
    found = read(part.content, from_start=part.from_start and not part.truncated)
    if not part.main:
        return _child(part, found)
    if not found.turns and not found.texts:
        return ()
    source = SOURCE if part.ours else WITHOUT_AMUX
    native = Sighting(
        control=NATIVE_MEMORY,
        observed="present" if found.native else "absent",
        source=source,
        turn=found.turns if part.ours else 0,
        contradicts=_native(ours=part.ours) if found.native else "",
    )
    return (native, *_protocol(part, found, source))


def identify(part: TranscriptPart, *, cwd: str, since: float) -> str:
    """Return the id of a conversation that `codex exec` began in this folder with this text."""
    found = read(part.content, from_start=part.from_start)
    native_id = found.meta.get("id")
    if not isinstance(native_id, str) or creation_time(native_id) <= since:
        return ""
    told = any(part.instructions in text for text in found.texts)
    if (found.meta.get("source"), found.meta.get("cwd")) != ("exec", cwd) or not told:
        return ""
    return native_id


def creation_time(native_id: str, otherwise: float = 0.0) -> float:
    """Return when a thread was made, in seconds since the epoch: its id, a UUID of version 7, says.

    `otherwise` is what another kind of id is taken for.
    """
    digits = native_id.replace("-", "")
    if len(digits) == UUID_DIGITS and digits[UUID_VERSION] == "7":
        return int(digits[:UUID_VERSION], 16) / 1000
    return otherwise


def _native(*, ours: bool) -> str:
    if ours:
        return "Codex put its native memory into this conversation, which was to have none"
    return "Codex put its native memory into this conversation while it went on without amux"


def _protocol(part: TranscriptPart, found: Rollout, source: str) -> tuple[Sighting, ...]:
    if found.compacted and not found.texts:
        return ()  # Codex sends them again with the next turn
    count = _count(part, found)
    turn = found.turns if part.ours else 0
    if not found.whole:
        observed = "unchanged" if not count else f"added {_times(count)}"
        return (Sighting(control=PROTOCOL, observed=observed, source=source, turn=turn),)
    contradicts = ""
    if count != 1:
        since = ", since it was compacted without amux" if found.compacted and not part.ours else ""
        contradicts = f"this conversation {_has(count)}{since}"
    return (
        Sighting(
            control=PROTOCOL,
            observed=_times(count),
            source=source,
            turn=turn,
            contradicts=contradicts,
        ),
    )


def _count(part: TranscriptPart, found: Rollout) -> int:
    protocol = part.protocol.strip()
    return sum(text.count(protocol) for text in found.texts) if protocol else 0


def _times(count: int) -> str:
    return {0: "absent", 1: "once"}.get(count, f"{count} times")


def _has(count: int) -> str:
    if not count:
        return "does not have the memory protocol"
    return f"has the memory protocol {count} times instead of once"


def is_child(meta: JsonObject, native_id: str) -> bool:
    """Say whether the file is that of a sub-agent of this conversation, however deep."""
    parents = (
        meta.get("session_id"),
        meta.get("parent_thread_id"),
        value_at(meta, f"{SPAWNED}.parent_thread_id"),
    )
    return bool(native_id) and meta.get("id") != native_id and native_id in parents


def _child(part: TranscriptPart, found: Rollout) -> tuple[Sighting, ...]:
    """Return what a sub-agent was told, by its role; only those that a model spawns have any."""
    if not is_child(found.meta, part.native_id) or not found.texts:
        return ()
    spawned = value_at(found.meta, SPAWNED)
    kind = value_at(found.meta, "source.subagent")
    name = str(kind) if isinstance(kind, str) else "default"
    if isinstance(spawned, dict):
        name = str(spawned.get("agent_role") or "default")
    who = f"sub-agents ({name})"
    native = Sighting(
        control=f"{NATIVE_MEMORY} in {who}",
        observed="present" if found.native else "absent",
        source=SOURCE,
        contradicts=f"Codex put its native memory into a sub-agent ({name})"
        if found.native
        else "",
    )
    if not isinstance(spawned, dict):
        return (native,)
    count = _count(part, found)
    # One that takes the conversation along may be sent its parent's instructions before its own.
    expected = count == 1 or (count > 1 and bool(found.meta.get("forked_from_id")))
    protocol = Sighting(
        control=f"{PROTOCOL} in {who}",
        observed=_times(count),
        source=SOURCE,
        contradicts="" if expected else f"a sub-agent ({name}) {_has(count)}",
    )
    return (native, protocol)
