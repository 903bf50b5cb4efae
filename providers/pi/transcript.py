"""What Pi's session file shows: from 0.87 on the prompt that Pi composed, and extensions' messages.

The prompt is written as named sections, later ones in place of earlier ones, and stands there as
Pi composed it: what an extension then makes of it is not written down. Text that extensions put
into the conversation is.
"""

from __future__ import annotations

import json
import posixpath
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from amux.providers.base import PROTOCOL, Sighting, Transcripts
from amux.providers.pi import arguments as argv
from amux.providers.pi import session_files
from amux.providers.pi.appended_text import agent_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amux.providers.base import AgentRequest, TranscriptPart

PROMPT: Final = "session file, the prompt before extensions change it"
MESSAGES: Final = "session file, messages of extensions"
INJECTED: Final = "text of extensions"
GONE_ON: Final = frozenset({"toolUse"})
"""Reasons for which an assistant's message ends and its turn does not."""


def locate(request: AgentRequest, native_id: str) -> Transcripts | None:
    """Name the session's file; None where none is kept, or its name cannot be a pattern."""
    items = argv.parse(request.arguments)
    if argv.given(items, argv.NO_SESSION) or not native_id or "*" in native_id:
        return None
    if "/" in native_id:
        return Transcripts(main=native_id)
    chosen = session_files.chosen_folder(request, items)
    folder = chosen or posixpath.join(agent_folder(request), "sessions", "*")
    return Transcripts(main=posixpath.join(folder, f"*_{native_id}{session_files.ENDING}"))


def read_part(part: TranscriptPart) -> tuple[Sighting, ...]:
    """Read the part's entries; what Pi composed without amux says nothing of amux's own prompt."""
    turn, sections, injected = 0, dict[str, str](), Counter[str]()
    held, written = set[str](), False
    text = _needle(part)
    for entry in _entries(part.content):
        message = entry.get("message")
        message = message if isinstance(message, dict) else {}
        checkpoint = entry.get("systemMessage")
        if isinstance(checkpoint, dict):
            sections.clear()
            _patch(sections, checkpoint)
        elif message.get("role") == "system":
            _patch(sections, message)
            written = True
        elif message.get("role") == "assistant":
            turn += message.get("stopReason") not in GONE_ON
        elif entry.get("type") == "custom_message":
            injected[str(entry.get("customType"))] += 1
        held |= {name for name, value in sections.items() if text in value}
    found = [_injected(injected, turn)] if injected else []
    if part.ours and (held or (written and part.from_start)):
        found.insert(0, _protocol(sum(one.count(text) for one in sections.values()), turn))
    return tuple(found)


def _protocol(times: int, turn: int) -> Sighting:
    observed = {0: "absent", 1: "once"}.get(times, f"{times} times")
    wrong = "" if times == 1 else f"Pi composed its prompt with the memory protocol {times} times"
    return Sighting(
        control=PROTOCOL, observed=observed, source=PROMPT, turn=turn, contradicts=wrong
    )


def _injected(kinds: Counter[str], turn: int) -> Sighting:
    observed = ", ".join(f"{name} ({number})" for name, number in sorted(kinds.items()))
    return Sighting(control=INJECTED, observed=observed, source=MESSAGES, turn=turn)


def _needle(part: TranscriptPart) -> str:
    """Return the protocol as this session has it: one may name the command by its variable."""
    protocol = part.protocol.strip()
    return protocol if protocol in part.instructions else part.instructions.strip()


def _patch(sections: dict[str, str], message: dict[str, Any]) -> None:
    content, patch = message.get("content"), message.get("sections")
    if isinstance(content, str) and content:
        sections[""] = content
    for name, value in (patch if isinstance(patch, dict) else {}).items():
        if isinstance(value, str):
            sections[name] = value
        else:
            sections.pop(name, None)


def _entries(content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            yield entry
