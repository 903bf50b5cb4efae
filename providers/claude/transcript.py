"""What Claude's own transcript shows: the second proof, read from its JSON lines.

From 2.1.268 on an `instructions` attachment lists each memory file that went into a request, with
its type: `AutoMem` is Claude's own memory. Later versions (2.1.316, 2.1.332) also write each
request as it was sent: `api-request-shape` holds system prompt and tools, `api-request` says which
of them it had and who asked. A hook's text for a sub-agent is an attachment in that one's file.
"""

from __future__ import annotations

import json
import posixpath
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from amux.providers.base import (
    INSTRUCTIONS,
    MEMORY_TOOLS,
    NATIVE_MEMORY,
    PROTOCOL,
    Sighting,
    Transcripts,
)
from amux.providers.claude.tools import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.providers.base import JsonObject, TranscriptPart

AUTO_MEMORY: Final = "AutoMem"
COMPACTION: Final = "compaction"
OTHERS: Final = " in sub-agents"
MAIN_ASKERS: Final = ("sdk", "cli", "repl_main_thread")
"""How the `querySource` of the conversation's own requests begins; others are titles and such."""
READ_BEFORE: Final = (
    "this conversation was continued without amux and read Claude's own memory; Claude sends that "
    "text again with each resume"
)
READ_NOW: Final = "Claude read its own memory into this conversation, which was to have none"
TELLING: Final = (b'"assistant"', b'"attachment"', b'"api-request', b'"compact_boundary"')


@dataclass(slots=True)
class _Seen:
    """What the lines of one part held."""

    answers: dict[str, bool] = field(default_factory=dict)
    """Each answer of the model by its id: whether it ended a turn."""
    shapes: dict[str, JsonObject] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Who asked, and the hash of the shape."""
    files: list[str] = field(default_factory=list)
    """The type of each memory file."""
    listed: bool = False
    hooks: str = ""
    compactions: int = 0
    version: str = ""


def transcripts(folder: str, native_id: str) -> Transcripts:
    """Name a conversation's file below Claude's own folder, and those of its sub-agents."""
    projects = posixpath.join(folder, "projects", "*")
    return Transcripts(
        main=posixpath.join(projects, f"{native_id}.jsonl"),
        beside=(posixpath.join(projects, native_id, "subagents", "*.jsonl"),),
    )


def read_part(part: TranscriptPart) -> tuple[Sighting, ...]:
    """Read a part; what its version does not store is said to be not stored, never absent."""
    seen = _read(part.content)
    turn = sum(seen.answers.values())
    name = "transcript" if part.main else f"transcript of {posixpath.basename(part.path)}"
    found = [*_native(seen, part, name), *_sent(seen, part, name)]
    if seen.compactions:
        by = str(seen.compactions) if part.ours else "without amux"
        found.append(_sighting(COMPACTION, by, f"{name}, compact_boundary"))
    stored = {one.control for one in found}
    if part.main and part.ours and turn:
        of = f"{name} of Claude {seen.version}"
        lacking = (one for one in (NATIVE_MEMORY, PROTOCOL) if one not in stored)
        found.extend(_sighting(one, "not stored", of) for one in lacking)
    return tuple(
        Sighting(
            control=one.control,
            observed=one.observed,
            source=one.source,
            turn=turn if part.ours else 0,
            contradicts=one.contradicts,
        )
        for one in found
    )


def _native(seen: _Seen, part: TranscriptPart, name: str) -> Iterator[Sighting]:
    """Say whether Claude's own memory was among the memory files of a request."""
    if not seen.listed and not seen.asked:
        return
    control = NATIVE_MEMORY if part.main else NATIVE_MEMORY + OTHERS
    source = f"{name}, instructions"
    if AUTO_MEMORY not in seen.files:
        yield _sighting(control, "absent", source)
        return
    yield _sighting(control, "present", source, READ_NOW if part.ours else READ_BEFORE)


def _sent(seen: _Seen, part: TranscriptPart, name: str) -> Iterator[Sighting]:
    """Count the texts and the tools in each request as it was sent."""
    if not part.ours:  # what was sent without amux needs no protocol
        return
    bodies = [seen.shapes[shape] for who, shape in seen.asked if _counts(who, part, seen, shape)]
    suffix = "" if part.main else OTHERS
    if not part.main and seen.hooks:
        times = {_system(body).count(part.protocol) for body in bodies} or {0}
        yield _texts(PROTOCOL + OTHERS, {seen.hooks.count(part.protocol) + max(times)}, name)
    elif bodies:
        counted = {_system(body).count(part.protocol) for body in bodies}
        yield _texts(PROTOCOL + suffix, counted, name)
    if not bodies:
        return
    offered = [_tools(body) for body in bodies]
    none = "" if offered[-1] else f"Claude offered none of the memory tools{suffix or ' here'}"
    yield _sighting(MEMORY_TOOLS + suffix, f"{offered[-1]} offered", f"{name}, request", none)
    if part.main and part.instructions:
        yield _texts(
            INSTRUCTIONS, {_system(body).count(part.instructions) for body in bodies}, name
        )


def _counts(who: str, part: TranscriptPart, seen: _Seen, shape: str) -> bool:
    return shape in seen.shapes and (not part.main or who.startswith(MAIN_ASKERS))


def _texts(control: str, counted: set[int], name: str) -> Sighting:
    """Say how often a text was in the requests; anything but once contradicts the launch."""
    source = f"{name}, request"
    if counted == {1}:
        return _sighting(control, "once", source)
    if counted == {0}:
        wrong = f"the {control} was in no request that Claude wrote down"
        return _sighting(control, "absent", source, wrong)
    times = ", ".join(f"{number} times" for number in sorted(counted))
    return _sighting(control, times, source, f"the {control} was in requests {times}, not once")


def _system(body: JsonObject) -> str:
    blocks = body.get("system")
    if isinstance(blocks, str):
        return blocks
    texts = (one.get("text") for one in blocks or () if isinstance(one, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def _tools(body: JsonObject) -> int:
    named = (one.get("name") for one in body.get("tools") or () if isinstance(one, dict))
    return sum(str(name).startswith(f"{PREFIX}__") for name in named)


def _read(content: bytes) -> _Seen:
    seen = _Seen()
    for line in content.splitlines():
        if not any(word in line for word in TELLING):
            continue
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if isinstance(message, dict):
            _take(message, seen)
    return seen


def _take(message: JsonObject, seen: _Seen) -> None:
    match message.get("type"):
        case "assistant":
            seen.version = str(message.get("version") or "")
            _answer(message.get("message"), seen)
        case "attachment":
            attachment = message.get("attachment")
            _attached(attachment if isinstance(attachment, dict) else {}, seen)
        case "api-request-shape":
            shape = message.get("shape")
            seen.shapes[str(message.get("shapeHash"))] = shape if isinstance(shape, dict) else {}
        case "api-request":
            seen.asked.append((str(message.get("querySource")), str(message.get("shapeHash"))))
        case "system" if message.get("subtype") == "compact_boundary":
            seen.compactions += 1


def _answer(answer: object, seen: _Seen) -> None:
    """Note an answer: each of its blocks has a line, and one that calls a tool ends no turn."""
    if not isinstance(answer, dict):
        return
    blocks = answer.get("content")
    kinds = {one.get("type") for one in blocks or () if isinstance(one, dict)}
    name = str(answer.get("id"))
    seen.answers[name] = seen.answers.get(name, True) and "tool_use" not in kinds


def _attached(attachment: JsonObject, seen: _Seen) -> None:
    match attachment.get("type"):
        case "instructions":
            seen.listed = True
            files = attachment.get("files")
            seen.files += [
                str(one.get("type"))
                for one in (files if isinstance(files, list) else ())
                if isinstance(one, dict)
            ]
        case "hook_additional_context":
            said = attachment.get("content")
            texts = said if isinstance(said, list) else [said]
            seen.hooks += "\n".join(text for text in texts if isinstance(text, str))


def _sighting(control: str, observed: str, source: str, contradicts: str = "") -> Sighting:
    return Sighting(control=control, observed=observed, source=source, contradicts=contradicts)
